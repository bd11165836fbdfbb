#include "kernels/gpu/kv_append.h"

#include <string>

#include "base/error.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/head_vector.h"

namespace lapidary::gpu {
namespace {

constexpr int kThreads = 64;

template <int kDim>
__device__ __forceinline__ void Store(const HeadVector<kDim>& x, bool is_bf16, std::byte* to) {
  using Vector = HeadVector<kDim>;
  constexpr int kWide = Vector::kWide;
#pragma unroll
  for (int i = 0; i < Vector::kLoads; ++i) {
    const int at = Vector::Index(i);
    if (at >= Vector::kHalf) continue;
    if (!is_bf16) {
      auto* out = reinterpret_cast<float*>(to) + at;
      *reinterpret_cast<typename Vector::Wide*>(out) = x.low[i];
      *reinterpret_cast<typename Vector::Wide*>(out + Vector::kHalf) = x.high[i];
      continue;
    }
    struct alignas(2 * kWide) Bits {
      uint16_t v[kWide];
    } low, high;
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      low.v[j] = FloatToBf16(x.low[i].v[j]);
      high.v[j] = FloatToBf16(x.high[i].v[j]);
    }
    auto* out = reinterpret_cast<uint16_t*>(to) + at;
    *reinterpret_cast<Bits*>(out) = low;
    *reinterpret_cast<Bits*>(out + Vector::kHalf) = high;
  }
}

// Where vector `vector` of [2 (k, v), kv_heads] of a row lies in the cache.
__device__ __forceinline__ std::byte* PlaceOf(const KvAppendArgs& args, int row, int vector) {
  const KvCacheView& cache = args.cache;
  const int sequence = args.rows.sequences[row], position = args.rows.positions[row];
  const int64_t entry =
      static_cast<int64_t>(sequence) * cache.max_blocks + position / kBlockPositions - cache.first_block[sequence];
  const int64_t element = (int64_t{vector} * kBlockPositions + position % kBlockPositions) * args.head_dim;
  return cache.data + cache.blocks[entry] * cache.block_bytes + element * (cache.is_bf16 ? 2 : 4);
}

// One warp writes one vector: [rows, 2 (k, v), kv_heads] of them.
template <int kDim>
__global__ void __launch_bounds__(kThreads) KvAppendKernel(const KvAppendArgs args) {
  DependentsMayStart();
  const int index = static_cast<int>(blockIdx.x * (kThreads / 32) + WarpIndex());
  const int row = index / (2 * args.kv_heads), vector = index % (2 * args.kv_heads);
  if (row >= *args.rows.count) return WaitForEarlierKernels();
  const bool is_v = vector >= args.kv_heads;
  const int head = is_v ? vector - args.kv_heads : vector;
  HeadVector<kDim> x, weight;
  weight.Load(args.k_weight);
  std::byte* to = PlaceOf(args, row, vector);
  WaitForEarlierKernels();
  x.Load(is_v ? args.v : args.k, row, head * kDim);
  // Loaded beside x, whether it is needed or not.
  typename HeadVector<kDim>::Rotation rotation;
  rotation.Load(args.rope, row);
  x.Norm(args.eps);
  if (!is_v) {
    x.Multiply(weight);
    x.Rotate(rotation);
  }
  Store<kDim>(x, args.cache.is_bf16, to);
}

}  // namespace

void KvAppend(gpuStream stream, const KvAppendArgs& args, int max_rows, bool dependent) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((max_rows * 2 * args.kv_heads + kThreads / 32 - 1) / (kThreads / 32));
  shape.block = kThreads;
  shape.dependent = dependent;
  switch (args.head_dim) {
    case 32:
      return Launch("kv_append", KvAppendKernel<32>, shape, stream, args);
    case 64:
      return Launch("kv_append", KvAppendKernel<64>, shape, stream, args);
    case 128:
      return Launch("kv_append", KvAppendKernel<128>, shape, stream, args);
    case 256:
      return Launch("kv_append", KvAppendKernel<256>, shape, stream, args);
    case 512:
      return Launch("kv_append", KvAppendKernel<512>, shape, stream, args);
    default:
      Throw(ErrorKind::kInvalidArgument,
            "head_dim: found " + std::to_string(args.head_dim) + ", wanted 32, 64, 128, 256 or 512");
  }
}

}  // namespace lapidary::gpu
