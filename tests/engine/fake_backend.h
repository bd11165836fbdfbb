#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/backend.h"

namespace lapidary {

// A model whose logits are a hash of the tokens a row can see, read back through the block tables as a real backend
// reads K/V. A block that was given away too early, shared, or not rolled back changes the result or is reported by
// `faults`. `memory` is how many of the last tokens the logits depend on: few make the text repeat itself.
class FakeBackend : public Backend {
 public:
  struct Options {
    int64_t vocab = 40;
    int64_t max_position_embeddings = 2000;
    int64_t window = 100;
    int64_t memory = 1 << 30;
    double scale = 4;  // logits lie in [-scale, scale)
    bool copies = true;
    bool samples = false;
  };

  explicit FakeBackend(const Options& options);

  const ModelPlan& plan() const override { return plan_; }
  std::string Description() const override { return "fake"; }
  int64_t WeightBytesPerStep() const override { return 1000; }
  void AllocateKv(const std::array<int32_t, kKvGroups>& blocks, DType type) override;
  void Forward(const StepBatch& batch, std::span<float> logits, TapSink* taps) override;
  void ForwardGreedy(const StepBatch& batch, std::span<int32_t> best, TapSink* taps) override;
  bool Samples() const override { return options_.samples; }
  void ForwardSample(const StepBatch& batch, std::span<const RowSampling> ways, std::span<int32_t> chosen) override;
  bool CopyKvBlock(int group, int32_t from, int32_t to) override;
  double LastStepFlops() const override { return 1; }

  // Called before each step; may throw.
  std::function<void(const StepBatch&)> on_step;
  // When set, the token that shall follow `text` (all that the row sees) instead of the hash's.
  std::function<int32_t(std::span<const int32_t> text)> script;

  std::vector<std::string> faults;
  int64_t steps = 0, greedy_steps = 0, sampled_steps = 0;
  int64_t rows = 0;
  int64_t max_rows = 0;

 private:
  struct Cell {
    int32_t token = -1;
    int32_t position = -1;
  };

  Cell* At(const BlockTableView& table, int group, int64_t position);
  void CheckOrder(const StepBatch& batch);
  // The tokens that row `position` sees in `group`, oldest first.
  std::vector<int32_t> Visible(const BlockTableView& table, int group, int64_t position);
  void FillLogits(std::span<const int32_t> sliding, std::span<const int32_t> full, std::span<float> logits) const;

  Options options_;
  ModelPlan plan_;
  std::array<std::vector<Cell>, kKvGroups> cells_;
};

}  // namespace lapidary
