// Products of E2B's shapes: GB/s of weights for few rows, GFLOP/s for many.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/matmul.h"

namespace lapidary::cpu {
namespace {

// Enough copies of the weights that none of them is still in a cache when it comes round again.
constexpr int64_t kWeightBytes = int64_t{512} << 20;

void BM_Matmul(benchmark::State& state) {
  const int64_t rows = state.range(0), outputs = state.range(1), cols = state.range(2);
  const int64_t copies = std::max<int64_t>(1, kWeightBytes / (2 * outputs * cols));
  std::vector<uint16_t> weights(static_cast<size_t>(copies * outputs * cols));
  uint32_t z = 1;
  for (uint16_t& w : weights)
    w = ToBF16(static_cast<float>((z = z * 1664525 + 1013904223) >> 8) * 0x1p-24f - 0.5f).bits;
  std::vector<float> x(static_cast<size_t>(rows * cols), 0.25f), out(static_cast<size_t>(rows * outputs));
  ThreadPool pool(ThreadPool::DefaultThreads());
  MatmulScratch scratch;
  int64_t copy = 0;
  for (auto _ : state) {
    const MatmulTarget target{
        {weights.data() + copy * outputs * cols, DType::kBF16, outputs, cols}, out.data(), outputs};
    Matmul(pool, scratch, x.data(), rows, cols, {&target, 1});
    copy = (copy + 1) % copies;
  }
  const double calls = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(2e-9 * calls * static_cast<double>(outputs * cols), benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * calls * static_cast<double>(rows * outputs * cols), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Matmul)
    ->ArgNames({"rows", "outputs", "cols"})
    ->ArgsProduct({{1, 4, 8, 256}, {12288}, {1536}})
    ->ArgsProduct({{1, 4, 8, 256}, {1536}, {12288}})
    ->ArgsProduct({{1, 256}, {2048, 4096, 6144, 262144}, {1536}})
    ->ArgsProduct({{1, 256}, {1536}, {256, 2048, 4096, 6144}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lapidary::cpu
