#include "backends/gpu/batch_graphs.h"

#include <algorithm>

namespace lapidary::gpu {
namespace {

// Rows that steps are rounded up to. Few rows stream the weights and are not rounded; the others are sizes of the
// products' that share an algorithm, so that one is chosen for each before it is recorded.
constexpr std::array<int64_t, 16> kRows = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48, 64, 96, 128, 192, 256};
static_assert(kRows.back() == BatchGraphs::kMostRows);
static_assert(BatchGraphs::kMostRows <= StepInput::kPieceRows * StepInput::kPieces);

ForwardPass::Setup ForDecode(ForwardPass::Setup setup) {
  setup.decode_rows = BatchGraphs::kMostRows;
  return setup;
}

size_t SizeFor(const StepBatch& batch) {
  const auto rows = static_cast<int64_t>(batch.ids.size());
  return static_cast<size_t>(std::ranges::lower_bound(kRows, rows) - kRows.begin());
}

constexpr size_t kResults = ForwardPass::kResultIds + BatchGraphs::kMostRows;

}  // namespace

BatchGraphs::BatchGraphs(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage,
                         const ForwardPass::Setup& setup)
    : pass_(plan, weights, storage, ForDecode(setup)), results_(kResults * sizeof(int32_t)) {
  static_assert(kRows.size() == kSizes);
}

bool BatchGraphs::Takes(const StepBatch& batch) {
  const auto rows = static_cast<int64_t>(batch.ids.size());
  return rows <= kMostRows && batch.logit_rows.size() == batch.ids.size() &&
         LongestRun(batch.sequences) <= kDecodeFewRows;
}

BatchGraphs::Recorded& BatchGraphs::Prepared(size_t size, const SampleInput* sampling, gpuStream stream) {
  Recorded& recorded = (sampling == nullptr ? greedy_ : sampled_)[size];
  const int sampling_version = sampling == nullptr ? 0 : sampling->version();
  if (!recorded.graph.empty() && recorded.version == input_.version() &&
      recorded.sampling_version == sampling_version) {
    return recorded;
  }
  const auto launch = [&] { pass_.LaunchDecode(input_, sampling, kRows[size], stream); };
  // The first time, kernels are set up and algorithms chosen; the step is only run twice by that.
  if (recorded.graph.empty()) launch();
  recorded.graph = Graph::Capture(stream, launch);
  recorded.version = input_.version();
  recorded.sampling_version = sampling_version;
  return recorded;
}

void BatchGraphs::Run(const StepBatch& batch, const SampleInput* sampling, std::span<int32_t> chosen,
                      gpuStream stream) {
  input_.Send(batch, stream);
  Prepared(SizeFor(batch), sampling, stream).graph.Launch(stream);
  auto* results = static_cast<int32_t*>(results_.data());
  CopyToHost(results, pass_.results(), (ForwardPass::kResultIds + batch.ids.size()) * sizeof(int32_t), stream);
  Synchronize(stream);
  ForwardPass::CheckResults(results);
  std::copy_n(results + ForwardPass::kResultIds, batch.ids.size(), chosen.begin());
}

void BatchGraphs::Time(const StepBatch& batch, GraphTimes& times, gpuStream stream) {
  input_.Send(batch, stream);
  const int64_t rows = kRows[SizeFor(batch)];
  const Graph graph = Graph::Capture(stream, [&] {
    times.Start(stream);
    pass_.LaunchDecode(input_, nullptr, rows, stream);
  });
  for (int i = 0; i < 2; ++i) graph.Launch(stream);
  Synchronize(stream);
}

}  // namespace lapidary::gpu
