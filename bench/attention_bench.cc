// Attention of E2B's two layer types: GFLOP/s and GB/s of keys and values.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/attention.h"

namespace lapidary::cpu {
namespace {

void BM_Attention(benchmark::State& state) {
  const int64_t rows = state.range(0), positions = state.range(2);
  const DType dtype = state.range(3) == 0 ? DType::kF32 : DType::kBF16;
  const int head_dim = static_cast<int>(state.range(1));
  const AttentionShape shape{8, 1, head_dim, head_dim == 256 ? 512 : 0};
  const int64_t blocks = (positions + kBlockPositions - 1) / kBlockPositions;
  const int64_t block_bytes = 2 * kBlockPositions * head_dim * static_cast<int64_t>(SizeOf(dtype));
  std::vector<std::byte> memory(static_cast<size_t>(blocks * block_bytes));
  std::vector<int32_t> table;
  for (int32_t b = 0; b < blocks; ++b) table.push_back(b);
  const KvBlocks kv{memory.data(), block_bytes, table.data(), 0, dtype};
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  std::vector<float> row(static_cast<size_t>(head_dim));
  for (int64_t p = 0; p < positions; ++p) {
    for (float& x : row) x = normal(generator);
    AppendKv(shape, kv, p, row.data(), row.data());
  }
  std::vector<AttentionRow> where;
  double seen = 0;
  for (int64_t r = 0; r < rows; ++r) {
    where.push_back({positions - rows + r, &kv});
    const int64_t visible = positions - rows + r + 1;
    seen += static_cast<double>(shape.window == 0 ? visible : std::min(visible, shape.window));
  }
  std::vector<float> q(static_cast<size_t>(rows * 8 * head_dim), 0.1f), out(q.size());
  ThreadPool pool(ThreadPool::DefaultThreads());
  AttentionScratch scratch;
  for (auto _ : state) Attention(pool, scratch, shape, q.data(), where, out.data());
  const double calls = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(4e-9 * calls * seen * 8 * head_dim, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Attention)
    ->ArgNames({"rows", "head_dim", "positions", "bf16"})
    ->ArgsProduct({{1, 4, 64}, {256}, {1024}, {0, 1}})
    ->ArgsProduct({{1, 4, 64}, {512}, {2048, 8192}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lapidary::cpu
