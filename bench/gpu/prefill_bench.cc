// Each kernel of a step of many rows alone, on the shapes of Gemma 4 E2B and, for the experts, 26B-A4B.
//   gpu_prefill_bench [rows...]   (512 2048 8192)
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/gpu/attention_prefill.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/experts.h"
#include "kernels/gpu/matmul.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {
namespace {

constexpr int kRuns = 10;
constexpr int kHidden = 1536, kHeads = 8, kWindow = 512;

// Normal bfloat16 numbers, or 32-bit words with one in their upper half: as float32 they are about the same.
template <typename T>
class Random {
 public:
  explicit Random(int64_t count) : memory_(static_cast<size_t>(count) * sizeof(T)) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    std::vector<uint16_t> pattern(size_t{1} << 20);
    for (uint16_t& word : pattern) {
      const float value = normal(generator);
      uint32_t bits;
      std::copy_n(reinterpret_cast<const char*>(&value), sizeof(bits), reinterpret_cast<char*>(&bits));
      word = static_cast<uint16_t>(bits >> 16);
    }
    const size_t bytes = pattern.size() * sizeof(uint16_t);
    for (size_t at = 0; at < memory_.size_bytes(); at += bytes) {
      CopyToDevice(static_cast<char*>(memory_.data()) + at, pattern.data(), std::min(bytes, memory_.size_bytes() - at),
                   nullptr);
    }
    Synchronize(nullptr);
  }
  T* data() const { return static_cast<T*>(memory_.data()); }

 private:
  DeviceMemory memory_;
};

DeviceMemory Upload(const void* from, size_t bytes) {
  DeviceMemory memory(bytes);
  CopyToDevice(memory.data(), from, bytes, nullptr);
  Synchronize(nullptr);
  return memory;
}

// Median time of `run`, printed with what it means.
void Measure(const std::string& name, double operations, double bytes, const std::function<void(gpuStream)>& run) {
  Stream stream;
  std::vector<double> times;
  for (int i = 0; i <= kRuns; ++i) {
    Event begin, end;
    begin.Record(stream.get());
    run(stream.get());
    end.Record(stream.get());
    end.Synchronize();
    if (i > 0) times.push_back(end.ElapsedMs(begin));
  }
  std::sort(times.begin(), times.end());
  const double ms = times[kRuns / 2];
  std::printf("%-44s %9.4f ms", name.c_str(), ms);
  if (operations > 0) std::printf(" %7.1f TFLOP/s", operations / ms * 1e-9);
  if (bytes > 0) std::printf(" %7.0f GB/s", bytes / ms * 1e-6);
  std::printf("\n");
  std::fflush(stdout);
}

void Attention(int rows, int head_dim, int terms, int64_t shared_bytes) {
  AttentionPrefillArgs args;
  args.shape = {kHeads, 1, head_dim, head_dim == 256 ? kWindow : 0, true, terms};
  args.tiling = ChoosePrefillTiling(args.shape, shared_bytes);
  const std::vector<int32_t> sequences(static_cast<size_t>(rows), 0);
  const std::vector<QueryTile> tiles = CutIntoTiles(sequences, args.tiling.rows);
  std::vector<int32_t> positions, blocks;
  double seen = 0;
  for (int32_t r = 0; r < rows; ++r) {
    positions.push_back(r);
    seen += args.shape.window == 0 ? r + 1 : std::min<int64_t>(r + 1, args.shape.window);
    if (r % kBlockPositions == 0) blocks.push_back(r / kBlockPositions);
  }
  const int32_t first_block = 0;
  const DeviceMemory device_tiles = Upload(tiles.data(), tiles.size() * sizeof(QueryTile)),
                     device_positions = Upload(positions.data(), positions.size() * sizeof(int32_t)),
                     device_blocks = Upload(blocks.data(), blocks.size() * sizeof(int32_t)),
                     device_first_block = Upload(&first_block, sizeof(first_block));
  const int64_t width = int64_t{kHeads} * head_dim, block_values = int64_t{2} * kBlockPositions * head_dim;
  const Random<uint16_t> q(3 * rows * width), cache(static_cast<int64_t>(blocks.size()) * block_values),
      out(3 * rows * width);
  args.tiles = static_cast<const QueryTile*>(device_tiles.data());
  args.tile_count = static_cast<int>(tiles.size());
  args.positions = static_cast<const int32_t*>(device_positions.data());
  args.q = {q.data(), q.data() + rows * width, q.data() + 2 * rows * width};
  args.cache = {reinterpret_cast<std::byte*>(cache.data()),
                block_values * 2,
                static_cast<const int32_t*>(device_blocks.data()),
                static_cast<const int32_t*>(device_first_block.data()),
                static_cast<int32_t>(blocks.size()),
                true};
  args.out = {nullptr, out.data()};
  if (terms == 3) args.out.lo = out.data() + rows * width, args.out.third = out.data() + 2 * rows * width;
  Measure("attention, heads of " + std::to_string(head_dim) + ", terms: " + std::to_string(terms),
          4.0 * seen * static_cast<double>(width) * terms, 0,
          [&](gpuStream stream) { AttentionPrefill(stream, args); });
}

void Product(ManyRowsMatmul& matmul, const MatmulWorkspace& workspace, const MatmulShape& shape) {
  const Random<uint16_t> x(shape.rows * shape.cols), w(shape.outputs * shape.cols);
  const DeviceMemory y(static_cast<size_t>(shape.rows * shape.outputs) * sizeof(float));
  Measure("product, " + std::to_string(shape.rows) + " rows, " + std::to_string(shape.outputs) + " x " +
              std::to_string(shape.cols),
          2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.outputs * shape.cols),
          2.0 * static_cast<double>(shape.cols * (shape.rows + shape.outputs) + 2 * shape.rows * shape.outputs),
          [&](gpuStream stream) {
            matmul.Run(stream, shape, x.data(), w.data(), static_cast<float*>(y.data()), workspace);
          });
}

void RowWise(int rows) {
  const int ffn = 6144, q_width = kHeads * 512;
  const Random<float> gate_up(int64_t{rows} * 2 * ffn), q(int64_t{rows} * q_width), hidden(int64_t{rows} * kHidden),
      branch(int64_t{rows} * kHidden), weight(kHidden), cos(int64_t{rows} * 64), sin(int64_t{rows} * 64);
  const Random<uint16_t> terms(3 * int64_t{rows} * ffn);
  const RowOutput out{nullptr, terms.data(), terms.data() + int64_t{rows} * ffn,
                      terms.data() + int64_t{rows} * 2 * ffn};
  const double values = rows;
  Measure("gelu_mul, 6144", 0, values * ffn * 14, [&](gpuStream stream) {
    GeluMul(stream, {rows}, ffn, {gate_up.data(), 2 * ffn}, {gate_up.data() + ffn, 2 * ffn}, out);
  });
  AddRmsNormTask task;
  task.branch = {branch.data(), kHidden};
  task.weight = task.next_weight = weight.data();
  task.eps = 1e-6f;
  task.hidden = hidden.data();
  task.next = NextRow::kNormed;
  task.out = out;
  Measure("add_rms_norm, 1536", 0, values * kHidden * 18,
          [&](gpuStream stream) { AddRmsNorm(stream, {rows}, kHidden, task); });
  Measure("norm_rotate_heads, 8 x 512", 0, values * q_width * 10, [&](gpuStream stream) {
    NormRotateHeads(stream, {rows}, {kHeads, 512}, {q.data(), q_width}, nullptr, 1e-6f, {cos.data(), sin.data(), 64},
                    out);
  });
}

void Experts(int rows) {
  const ExpertShape shape{128, 8, 2816, 704};
  const int64_t weights = int64_t{shape.experts} * shape.width * shape.hidden;
  const Random<uint16_t> gate_up(2 * weights), down(weights), x(3 * int64_t{rows} * shape.hidden);
  const Random<float> scores(int64_t{rows} * shape.experts), scale(shape.experts), out(int64_t{rows} * shape.hidden);
  const ExpertWorkspace workspace(shape, rows);
  Measure("route experts, " + std::to_string(rows) + " rows", 0, 0, [&](gpuStream stream) {
    RouteExperts(stream, {rows}, {scores.data(), shape.experts}, scale.data(), workspace);
  });
  const double used = std::min(1.0, rows * 8.0 / shape.experts) * static_cast<double>(weights) * 6;
  for (const int terms : {1, 3}) {
    RowTerms input{x.data()};
    const int64_t size = int64_t{rows} * shape.hidden;
    if (terms == 3) input.lo = x.data() + size, input.third = x.data() + 2 * size;
    Measure("run experts, " + std::to_string(rows) + " rows, terms: " + std::to_string(terms),
            rows * 8.0 * 6.0 * shape.width * shape.hidden * terms, used, [&](gpuStream stream) {
              RunExperts(stream, {rows}, input, {gate_up.data(), down.data()}, workspace, out.data());
            });
  }
}

void Run(const std::vector<int>& row_counts) {
  std::string why;
  const std::optional<DeviceInfo> device = FindDevice(&why);
  if (!device) {
    std::printf("no GPU: %s\n", why.c_str());
    return;
  }
  std::printf("%s\n", device->name.c_str());
  ManyRowsMatmul matmul;
  const DeviceMemory memory(kMatmulWorkspaceBytes);
  const MatmulWorkspace workspace{memory.data(), memory.size_bytes()};
  for (const int rows : row_counts) {
    std::printf("-- %d rows\n", rows);
    for (const int terms : {1, 3}) {
      for (const int head_dim : {256, 512}) Attention(rows, head_dim, terms, device->shared_bytes_per_block);
      const int64_t stacked = int64_t{rows} * terms;
      for (const MatmulShape& shape : {MatmulShape{stacked, 2560, 1536}, MatmulShape{stacked, 1536, 2048},
                                       MatmulShape{stacked, 12288, 1536}, MatmulShape{stacked, 1536, 6144}}) {
        Product(matmul, workspace, shape);
      }
    }
    RowWise(rows);
  }
  for (const int rows : {1, 8, 64, 1024, 8192}) Experts(rows);
}

}  // namespace
}  // namespace lapidary::gpu

int main(int count, char** words) {
  std::vector<int> rows;
  for (int i = 1; i < count; ++i) rows.push_back(std::max(1, std::atoi(words[i])));
  if (rows.empty()) rows = {512, 2048, 8192};
  try {
    lapidary::gpu::Run(rows);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
