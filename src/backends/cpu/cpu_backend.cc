#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cpu/forward_pass.h"
#include "backends/cpu/kv_storage.h"
#include "backends/cpu/placed_weights.h"
#include "backends/step_check.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "checkpoint/tensor_index.h"
#include "kernels/cpu/machine_probe.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_dispatch.h"
#include "model/config.h"
#include "model/model_weights.h"
#include "sampling/sampler.h"

namespace lapidary {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Bytes mapped in at a time, so that progress moves.
constexpr size_t kPopulateBytes = size_t{256} << 20;

// Bytes [begin, end) of a mapped file.
struct FileRange {
  size_t file, begin, end;
};

// Where the tensors lie that every step reads. The per-layer table is left out: a token reads one row of it. Tensors
// less than a huge page apart are one range, and ranges begin and end between huge pages: the system maps one only
// where all of it is asked for alike.
std::vector<FileRange> RangesOfWeights(const TensorIndex& index, const ModelPlan& plan) {
  std::vector<FileRange> all;
  for (const WeightSpec& spec : RequiredWeights(plan)) {
    if (spec.name == plan.config.tensor_prefix + "embed_tokens_per_layer.weight") continue;
    const StoredTensor& tensor = *index.Find(spec.name);
    const std::span<const std::byte> file = index.files()[tensor.file].bytes();
    const auto begin = static_cast<size_t>(tensor.bytes.data() - file.data()), end = begin + tensor.bytes.size();
    all.push_back({tensor.file, begin / kHugePage * kHugePage,
                   std::min(file.size(), (end + kHugePage - 1) / kHugePage * kHugePage)});
  }
  std::sort(all.begin(), all.end(), [](const FileRange& a, const FileRange& b) {
    return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
  });
  std::vector<FileRange> ranges;
  for (const FileRange& range : all) {
    if (ranges.empty() || ranges.back().file != range.file || ranges.back().end < range.begin) {
      ranges.push_back(range);
    } else {
      ranges.back().end = std::max(ranges.back().end, range.end);
    }
  }
  return ranges;
}

void PopulateWeights(const TensorIndex& index, const ModelPlan& plan, const ProgressFn& progress) {
  const std::vector<FileRange> ranges = RangesOfWeights(index, plan);
  uint64_t total = 0, done = 0;
  for (const FileRange& range : ranges) total += range.end - range.begin;
  for (const FileRange& range : ranges) {
    const MappedFile& file = index.files()[range.file];
    for (size_t at = range.begin; at < range.end; at += kPopulateBytes) {
      const size_t size = std::min(kPopulateBytes, range.end - at);
      file.Populate(file.bytes().subspan(at, size));
      done += size;
      if (progress) progress("loading", done, total);
    }
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const std::string& folder, const CpuBackendOptions& options, const ProgressFn& progress)
      : plan_(MakeModelPlan(LoadConfig(folder))),
        index_(TensorIndex::Open(folder)),
        weights_(cpu::PlaceWeights(plan_, BindWeights(index_, plan_))),
        step_bytes_(SummarizeUse(index_, plan_).per_token_bytes),
        pool_(options.threads == 0 ? ThreadPool::DefaultThreads() : options.threads),
        forward_(plan_, weights_, pool_) {
    PopulateWeights(index_, plan_, progress);
  }

  const ModelPlan& plan() const override { return plan_; }

  std::string Description() const override {
    return "cpu (" + cpu::SimdTargetName() + ", " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread)" : " threads)");
  }

  int64_t WeightBytesPerStep() const override { return step_bytes_; }

  void AllocateKv(const std::array<int32_t, kKvGroups>& blocks, DType type) override {
    CheckKvType(type);
    storage_ = cpu::KvStorage(plan_.kv, blocks, type);
  }

  void Forward(const StepBatch& batch, std::span<float> logits, TapSink* taps) override {
    CheckStep(plan_, {storage_.blocks(0), storage_.blocks(1)}, batch);
    CheckRoom("logits", logits.size(), batch.logit_rows.size() * static_cast<size_t>(plan_.vocab()));
    forward_.Run(batch, storage_, logits, taps);
  }

  void ForwardGreedy(const StepBatch& batch, std::span<int32_t> best, TapSink* taps) override;

  bool CopyKvBlock(int group, int32_t from, int32_t to) override {
    storage_.CopyBlock(group, from, to);
    return true;
  }

  double LastStepFlops() const override { return forward_.flops(); }

  int HostThreads() const override { return pool_.threads(); }
  MachineRates MeasureMachine() override { return {cpu::MeasureReadBandwidth(pool_), cpu::MeasureFmaPeak(pool_)}; }

 private:
  ModelPlan plan_;
  TensorIndex index_;
  cpu::PlacedWeights weights_;
  int64_t step_bytes_;
  ThreadPool pool_;
  cpu::ForwardPass forward_;
  cpu::KvStorage storage_;
  std::vector<float> logits_;  // of ForwardGreedy: [logit rows of the largest step so far, vocab]
};

void CpuBackend::ForwardGreedy(const StepBatch& batch, std::span<int32_t> best, TapSink* taps) {
  const size_t rows = batch.logit_rows.size();
  const auto vocab = static_cast<size_t>(plan_.vocab());
  CheckRoom("best ids", best.size(), rows);
  logits_.resize(std::max(logits_.size(), rows * vocab));
  Forward(batch, std::span(logits_).first(rows * vocab), taps);
  pool_.ParallelFor(rows, 1, [&](size_t begin, size_t end, int) {
    for (size_t row = begin; row < end; ++row) best[row] = Argmax(std::span(logits_).subspan(row * vocab, vocab));
  });
}

}  // namespace

std::unique_ptr<Backend> LoadCpuBackend(const std::string& folder, const CpuBackendOptions& options,
                                        const ProgressFn& progress) {
  return std::make_unique<CpuBackend>(folder, options, progress);
}

}  // namespace lapidary
