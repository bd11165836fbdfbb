#pragma once

#include <array>
#include <cstdint>

#include "backends/gpu/kv_storage.h"
#include "backends/gpu/placed_weights.h"
#include "backends/gpu/rotation.h"
#include "backends/gpu/scratch.h"
#include "backends/gpu/step_input.h"
#include "kernels/gpu/attention_decode.h"
#include "kernels/gpu/matmul_few.h"
#include "model/model_plan.h"

namespace lapidary::gpu {

// One step of at most kFewRows rows, all of whose logits are computed: seven launches a layer, each of which reads its
// weights while the one before it still runs. A row's results do not depend on the other rows.
class DecodePass {
 public:
  // Everything must outlive it.
  DecodePass(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage, const DeviceInfo& device,
             int64_t max_positions);

  // Whether it can run the model: no experts, a residual stream of at most kFewResidualWidth.
  static bool Takes(const ModelPlan& plan);

  // Gives the launches of a step of `rows` rows to `stream`, after which the results below hold.
  void Launch(const StepInput& input, int rows, gpuStream stream);

  const float* logits() const { return logits_.data(); }      // [kFewRows, vocab]
  const int32_t* results() const { return results_.data(); }  // [kResults]: the best id of each row, then
  // the first place (places.h) with a value that was not finite, 0 for none.
  static constexpr int kResults = kFewRows + 1;

 private:
  // A branch that has not joined the residual stream yet.
  struct Branch {
    const float* x = nullptr;
    int parts = 1;
    const float* norm = nullptr;
    float scale = 1.0f;
  };

  MatmulFewArgs ArgsOf(int64_t k) const;
  // branch = w x, normed by `norm` when it joins the stream.
  void MakeBranch(const char* what, const float* x, const DeviceMatrix& w, const float* norm, gpuStream stream);
  // The branch joins the stream on the way into a product whose input is the stream, normed by `pre_norm`.
  void JoinBranch(MatmulFewArgs& args, const float* pre_norm, int place);
  void Embed(const StepInput& input, gpuStream stream);
  void Layer(const StepInput& input, const LayerPlan& plan, const PlacedLayer& w, gpuStream stream);
  void Attention(const StepInput& input, const LayerPlan& plan, const PlacedLayer& w, gpuStream stream);
  void FeedForward(const LayerPlan& plan, const PlacedLayer& w, gpuStream stream);
  void PerLayerBranch(const LayerPlan& plan, const PlacedLayer& w, gpuStream stream);
  void Head(gpuStream stream);

  const ModelPlan& plan_;
  const PlacedWeights& weights_;
  const KvStorage& storage_;
  Rotation rotation_;
  std::array<AttentionDecodePlan, kKvGroups> attention_plans_;

  Scratch<float> embedding_;               // [kFewRows, D]
  std::array<Scratch<float>, 2> streams_;  // [kFewRows, D] residual stream, before and after a branch
  Scratch<float> qkv_;                     // [kFewRows, (heads + 2 kv_heads) * head_dim]
  Scratch<float> attention_;               // [kFewRows, heads * head_dim]
  Scratch<float> branch_;                  // [parts, kFewRows, D]
  Scratch<float> gated_;                   // [kFewRows, F]
  Scratch<float> context_, per_layer_;     // [kFewRows, L * P]
  Scratch<float> per_layer_gate_;          // [kFewRows, P]
  Scratch<float> logits_;                  // [kFewRows, V]
  Scratch<BestLogit> cta_best_;            // [CTAs, kFewRows]
  Scratch<int32_t> results_;               // [kResults]
  Scratch<std::byte> attention_workspace_;

  int32_t rows_ = 0;               // of the step that is being launched
  const float* stream_ = nullptr;  // where the residual stream lies now
  Branch branch_state_;
};

}  // namespace lapidary::gpu
