#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/kv_storage.h"
#include "backends/gpu/placed_weights.h"
#include "backends/gpu/rotation.h"
#include "backends/gpu/scratch.h"
#include "backends/gpu/step_input.h"
#include "kernels/gpu/decode_step.h"
#include "model/model_plan.h"

namespace lapidary::gpu {

// One step of at most kFewRows rows, all of whose logits are computed: the embedding and the per-layer inputs, then all
// layers and the head in one launch (DecodeStep). A row's results do not depend on the other rows.
class DecodePass {
 public:
  // Everything must outlive it.
  DecodePass(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage, const DeviceInfo& device,
             int64_t max_positions);

  // Whether it can run the model: no experts, a residual stream of at most kDecodeStepWidth.
  static bool Takes(const ModelPlan& plan);

  // Gives the launches of a step of `rows` rows to `stream`, after which the results below hold.
  void Launch(const StepInput& input, int rows, gpuStream stream) { Launch(input, rows, nullptr, stream); }
  // The same, noting what Stages reads. Not while a graph is recorded for the first time.
  void LaunchMarked(const StepInput& input, int rows, gpuStream stream);
  // Where the time of the last marked step went; `stream` was waited for.
  std::vector<KernelTime> Stages() const;

  const float* logits() const { return logits_.data(); }      // [kFewRows, vocab]
  const int32_t* results() const { return results_.data(); }  // [kResults]: the best id of each row, then
  static constexpr int kBadPlace = kFewRows;  // the first place (places.h) with a value that was not finite, 0 for none
  static constexpr int kStuck = kFewRows + 1;  // where blocks waited too long for each other (NameOfStuck), 0: nowhere
  static constexpr int kResults = kFewRows + 2;

 private:
  void Launch(const StepInput& input, int rows, int64_t* marks, gpuStream stream);
  void PlaceCells(int64_t max_positions);
  void PlaceLayers();
  void Embed(const StepInput& input, int step_rows, gpuStream stream);

  const ModelPlan& plan_;
  const PlacedWeights& weights_;
  const KvStorage& storage_;
  const int multiprocessors_;
  Rotation rotation_;
  DecodeStepArgs args_;  // what is the same in all steps

  std::vector<DecodeCells> layer_cells_;
  Scratch<DecodeLayer> layers_;
  Scratch<DecodeStepState> state_;
  Scratch<int64_t> marks_;              // of LaunchMarked
  Scratch<float> cells_;                // both sets
  Scratch<float> embedding_;            // [kFewRows, D]
  Scratch<float> context_, per_layer_;  // [kFewRows, L * P]
  Scratch<float> logits_;               // [kFewRows, V]
  Scratch<BestLogit> best_;             // [blocks, kFewRows]
  Scratch<int32_t> results_;            // [kResults]
};

}  // namespace lapidary::gpu
