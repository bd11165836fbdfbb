#include "kernels/gpu/bandwidth_probe.h"

#include <algorithm>

#include "kernels/gpu/device/common.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {
namespace {

constexpr unsigned kThreads = 1024;
constexpr int kLoads = 8;           // in flight a thread
constexpr size_t kCacheTimes = 64;  // bytes read, in sizes of the second-level cache
constexpr int kPasses = 5;

// `vectors` is a multiple of the grid's threads times kLoads. The sum is stored only if it has one value of 2^32, so
// that no load can be left out.
__global__ void __launch_bounds__(kThreads) ReadKernel(const uint4* from, size_t vectors, uint32_t* out) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  uint32_t sum = 0;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < vectors; i += stride * kLoads) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) v[j] = LoadGlobal16(from + i + static_cast<size_t>(j) * stride);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x9e3779b9u) *out = sum;
}

}  // namespace

double MeasureReadBandwidth() {
  const std::optional<DeviceInfo> device = FindDevice(nullptr);
  if (!device) return 0.0;
  const auto grid = static_cast<unsigned>(device->multiprocessors);
  const size_t round = size_t{grid} * kThreads * kLoads * sizeof(uint4);
  const size_t wanted =
      std::min(kCacheTimes * static_cast<size_t>(device->l2_bytes), static_cast<size_t>(device->free_bytes) / 2);
  const size_t bytes = std::max(round, wanted / round * round);
  const DeviceMemory memory(bytes), out(sizeof(uint32_t));
  const Stream stream;
  Fill(memory.data(), 0x5a, bytes, stream.get());
  LaunchShape shape;
  shape.grid_x = grid;
  shape.block = kThreads;
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    Event begin, end;
    begin.Record(stream.get());
    Launch("read bandwidth", ReadKernel, shape, stream.get(), static_cast<const uint4*>(memory.data()),
           bytes / sizeof(uint4), static_cast<uint32_t*>(out.data()));
    end.Record(stream.get());
    begin.Synchronize();
    end.Synchronize();
    best = std::max(best, static_cast<double>(bytes) / (end.ElapsedMs(begin) * 1e6));
  }
  return best;
}

}  // namespace lapidary::gpu
