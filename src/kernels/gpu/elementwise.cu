#include "kernels/gpu/elementwise.h"

#include <cmath>

#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/gelu.h"
#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/row_vectors.h"

namespace lapidary::gpu {
namespace {

constexpr int kBlock = 256;           // threads of the kernels without a reduction over a row
constexpr int kMaxNormBlock = 1024;   // threads that share a row
constexpr int kVectorsPerThread = 2;  // kept in registers
constexpr float kSqrtHalf = 0.70710678f;

static_assert(kMaxNormBlock * kVectorsPerThread * kVector == kMaxNormWidth);

__device__ __forceinline__ float Squares(const Float8& x) {
  float sum = 0;
  for (int i = 0; i < kVector; ++i) sum += x.v[i] * x.v[i];
  return sum;
}

__device__ __forceinline__ Float8 Scaled(Float8 x, float factor) {
  for (int i = 0; i < kVector; ++i) x.v[i] *= factor;
  return x;
}

// x * factor * weight[column..]; a null weight is 1.
__device__ __forceinline__ Float8 Weighted(Float8 x, float factor, const float* weight, int column) {
  x = Scaled(x, factor);
  if (weight == nullptr) return x;
  const Float8 w = Load8(weight + column);
  for (int i = 0; i < kVector; ++i) x.v[i] *= w.v[i];
  return x;
}

__device__ __forceinline__ float NormFactor(float squares, int width, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + eps);
}

// The sum over all threads of a CTA of whole warps, the same in each: warps first, then the warps' sums in order.
// `sums` [32] is shared and free again after the next __syncthreads.
__device__ __forceinline__ float BlockSum(float value, float* sums) {
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = WarpSum(value);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < warps; ++i) total += sums[i];
  return total;
}

__device__ __forceinline__ void Check(const FiniteCheck& check, const Float8& x, uint32_t row) {
  bool finite = true;
  for (int i = 0; i < kVector; ++i) finite = finite && fabsf(x.v[i]) <= 3.4028235e38f;
  if (!finite) AtomicMax64(check.flag, static_cast<uint64_t>(~check.stage) << 32 | ~row);
}

// A CTA a row.
__global__ void __launch_bounds__(kMaxNormBlock)
    RmsNormKernel(RowCount rows, int width, RowInput x, const float* weight, float eps, RowOutput out) {
  LAPIDARY_SHARED(sums, float[32]);
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t row = blockIdx.x;
  if (row >= CountOf(rows)) return;
  const int step = static_cast<int>(blockDim.x) * kVector, begin = static_cast<int>(threadIdx.x) * kVector;
  Float8 values[kVectorsPerThread];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (begin + i * step >= width) continue;
    values[i] = Load8(x, row, begin + i * step);
    squares += Squares(values[i]);
  }
  const float factor = NormFactor(BlockSum(squares, sums), width, eps);
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const int column = begin + i * step;
    if (column < width) Store8(out, row * width + column, Weighted(values[i], factor, weight, column));
  }
}

// A CTA a row.
__global__ void __launch_bounds__(kMaxNormBlock) AddRmsNormKernel(RowCount rows, int width, AddRmsNormTask task) {
  LAPIDARY_SHARED(sums, float[2][32]);
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t row = blockIdx.x;
  if (row >= CountOf(rows)) return;
  const int step = static_cast<int>(blockDim.x) * kVector, begin = static_cast<int>(threadIdx.x) * kVector;
  Float8 values[kVectorsPerThread];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (begin + i * step >= width) continue;
    values[i] = Load8(task.branch, row, begin + i * step);
    squares += Squares(values[i]);
  }
  const float factor = NormFactor(BlockSum(squares, sums[0]), width, task.eps);
  squares = 0;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const int column = begin + i * step;
    if (column >= width) continue;
    float* hidden = task.hidden + row * width + column;
    const Float8 before = Load8(hidden), added = Weighted(values[i], factor, task.weight, column);
    for (int j = 0; j < kVector; ++j) values[i].v[j] = (before.v[j] + added.v[j]) * task.scale;
    Store8(hidden, values[i]);
    if (task.check.flag != nullptr) Check(task.check, values[i], static_cast<uint32_t>(row));
    squares += Squares(values[i]);
  }
  if (task.next == NextRow::kNone) return;
  const bool normed = task.next == NextRow::kNormed;
  const float next_factor = normed ? NormFactor(BlockSum(squares, sums[1]), width, task.eps) : 1.0f;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const int column = begin + i * step;
    if (column >= width) continue;
    Store8(task.out, row * width + column,
           normed ? Weighted(values[i], next_factor, task.next_weight, column) : values[i]);
  }
}

__global__ void RopeTableKernel(RowCount rows, const int32_t* positions, const float* inverse_frequencies, int pairs,
                                float* cos_out, float* sin_out) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = at / pairs;
  if (row >= CountOf(rows)) return;
  const float angle = static_cast<float>(positions[row]) * inverse_frequencies[at % pairs];
  cos_out[at] = cosf(angle);
  sin_out[at] = sinf(angle);
}

struct HeadTask {
  HeadShape shape;
  RowInput x;
  const float* weight;
  float eps;
  RopeTableView rope;
  RowOutput out;
};

__device__ __forceinline__ Float8 Rotated(const Float8& x, const Float8& other, const float* cosines,
                                          const float* sines, int count, float sign) {
  Float8 out = x;
  for (int i = 0; i < kVector; ++i) {
    if (i < count) out.v[i] = x.v[i] * cosines[i] + sign * other.v[i] * sines[i];
  }
  return out;
}

// A warp a head: a lane holds 8 values of the first half and the 8 that they are paired with.
__global__ void __launch_bounds__(kBlock) NormRotateHeadsKernel(RowCount rows, HeadTask task) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t at = int64_t{blockIdx.x} * (kBlock / kWarpSize) + threadIdx.x / kWarpSize;
  const int64_t row = at / task.shape.heads;
  const int head = static_cast<int>(at % task.shape.heads);
  if (row >= CountOf(rows)) return;
  const int half = task.shape.head_dim / 2, pair = static_cast<int>(threadIdx.x % kWarpSize) * kVector;
  const int column = head * task.shape.head_dim + pair;
  const bool active = pair < half;
  Float8 a{}, b{};
  if (active) {
    a = Load8(task.x, row, column);
    b = Load8(task.x, row, column + half);
  }
  const float factor = NormFactor(WarpSum(Squares(a) + Squares(b)), task.shape.head_dim, task.eps);
  if (!active) return;
  a = Weighted(a, factor, task.weight, pair);
  b = Weighted(b, factor, task.weight, pair + half);
  const int64_t out = row * task.shape.heads * task.shape.head_dim + column;
  if (pair < task.rope.pairs) {
    const int64_t angle = row * task.rope.pairs + pair;
    const float *cosines = task.rope.cos + angle, *sines = task.rope.sin + angle;
    const int count = task.rope.pairs - pair;
    const Float8 before = a;
    a = Rotated(a, b, cosines, sines, count, -1.0f);
    b = Rotated(b, before, cosines, sines, count, 1.0f);
  }
  Store8(task.out, out, a);
  Store8(task.out, out + half, b);
}

// A warp a row and layer.
__global__ void __launch_bounds__(kBlock) PerLayerInputsKernel(RowCount rows, PerLayerInputsTask task, float* out) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t at = int64_t{blockIdx.x} * (kBlock / kWarpSize) + threadIdx.x / kWarpSize;
  const int64_t row = at / task.layers;
  if (row >= CountOf(rows)) return;
  const int first = static_cast<int>(at % task.layers) * task.width;
  const int begin = static_cast<int>(threadIdx.x % kWarpSize) * kVector, step = kWarpSize * kVector;
  float squares = 0;
  for (int i = begin; i < task.width; i += step) {
    squares += Squares(Scaled(Load8(task.context, row, first + i), task.context_scale));
  }
  const float factor = NormFactor(WarpSum(squares), task.width, task.eps);
  const uint16_t* token = task.table + int64_t{task.ids[row]} * task.table_stride + first;
  for (int i = begin; i < task.width; i += step) {
    const Float8 context = Scaled(Load8(task.context, row, first + i), task.context_scale);
    Float8 sum = Weighted(context, factor, task.weight, i);
    const Float8 ours = LoadBf16(token + i);
    for (int j = 0; j < kVector; ++j) sum.v[j] = (sum.v[j] + ours.v[j] * task.token_scale) * kSqrtHalf;
    Store8(out + row * task.layers * task.width + first + i, sum);
  }
}

// One vector a thread: f(row, column) for every vector of every row.
template <typename F>
__global__ void __launch_bounds__(kBlock) VectorKernel(RowCount rows, int width, F f) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t at = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kVector, row = at / width;
  if (row < CountOf(rows)) f(row, static_cast<int>(at % width), at);
}

struct EmbedVector {
  const int32_t* ids;
  const uint16_t* table;
  float scale;
  int width;
  RowOutput out;
  __device__ void operator()(int64_t row, int column, int64_t at) const {
    Store8(out, at, Scaled(LoadBf16(table + int64_t{ids[row]} * width + column), scale));
  }
};

struct GeluMulVector {
  RowInput gate, up;
  RowOutput out;
  __device__ void operator()(int64_t row, int column, int64_t at) const {
    Float8 value = Load8(gate, row, column);
    const Float8 factor = Load8(up, row, column);
    for (int i = 0; i < kVector; ++i) value.v[i] = GeluTanh(value.v[i]) * factor.v[i];
    Store8(out, at, value);
  }
};

struct ConvertVector {
  RowInput x;
  RowOutput out;
  __device__ void operator()(int64_t row, int column, int64_t at) const { Store8(out, at, Load8(x, row, column)); }
};

struct SoftcapVector {
  RowInput x;
  float cap;
  float* out;
  __device__ void operator()(int64_t row, int column, int64_t at) const {
    Float8 value = Load8(x, row, column);
    for (int i = 0; i < kVector && cap > 0; ++i) value.v[i] = cap * tanhf(value.v[i] / cap);
    Store8(out + at, value);
  }
};

struct GatherVector {
  RowInput x;
  const int32_t* kept;
  float* out;
  __device__ void operator()(int64_t row, int column, int64_t at) const {
    Store8(out + at, Load8(x, kept[row], column));
  }
};

struct CheckVector {
  const float* x;
  FiniteCheck check;
  __device__ void operator()(int64_t row, int, int64_t at) const {
    Check(check, Load8(x + at), static_cast<uint32_t>(row));
  }
};

LaunchShape Shape(int64_t ctas, int block) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(ctas);
  shape.block = static_cast<unsigned>(block);
  shape.dependent = true;
  return shape;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Threads for a row of `width`, so that each holds at most kVectorsPerThread vectors.
int NormBlock(int width) {
  const int64_t vectors = CeilDiv(width, kVector);
  const int64_t threads = vectors <= kMaxNormBlock ? vectors : CeilDiv(vectors, kVectorsPerThread);
  return static_cast<int>(CeilDiv(threads, kWarpSize)) * kWarpSize;
}

template <typename F>
void LaunchVectors(const char* what, gpuStream stream, RowCount rows, int width, const F& f) {
  if (rows.max == 0) return;
  Launch(what, VectorKernel<F>, Shape(CeilDiv(int64_t{rows.max} * width, kBlock * kVector), kBlock), stream, rows,
         width, f);
}

}  // namespace

void RmsNorm(gpuStream stream, RowCount rows, int width, RowInput x, const float* weight, float eps, RowOutput out) {
  if (rows.max == 0) return;
  Launch("RmsNorm", RmsNormKernel, Shape(rows.max, NormBlock(width)), stream, rows, width, x, weight, eps, out);
}

void AddRmsNorm(gpuStream stream, RowCount rows, int width, const AddRmsNormTask& task) {
  if (rows.max == 0) return;
  Launch("AddRmsNorm", AddRmsNormKernel, Shape(rows.max, NormBlock(width)), stream, rows, width, task);
}

void RopeTable(gpuStream stream, RowCount rows, const int32_t* positions, const float* inverse_frequencies, int pairs,
               float* cos, float* sin) {
  if (rows.max == 0 || pairs == 0) return;
  Launch("RopeTable", RopeTableKernel, Shape(CeilDiv(int64_t{rows.max} * pairs, kBlock), kBlock), stream, rows,
         positions, inverse_frequencies, pairs, cos, sin);
}

void NormRotateHeads(gpuStream stream, RowCount rows, HeadShape shape, RowInput x, const float* weight, float eps,
                     RopeTableView rope, RowOutput out) {
  if (rows.max == 0) return;
  const int64_t warps = int64_t{rows.max} * shape.heads;
  Launch("NormRotateHeads", NormRotateHeadsKernel, Shape(CeilDiv(warps * kWarpSize, kBlock), kBlock), stream, rows,
         HeadTask{shape, x, weight, eps, rope, out});
}

void EmbedRows(gpuStream stream, RowCount rows, int width, const int32_t* ids, const uint16_t* table, float scale,
               RowOutput out) {
  LaunchVectors("EmbedRows", stream, rows, width, EmbedVector{ids, table, scale, width, out});
}

void GeluMul(gpuStream stream, RowCount rows, int width, RowInput gate, RowInput up, RowOutput out) {
  LaunchVectors("GeluMul", stream, rows, width, GeluMulVector{gate, up, out});
}

void PerLayerInputs(gpuStream stream, RowCount rows, const PerLayerInputsTask& task, float* out) {
  const int64_t warps = int64_t{rows.max} * task.layers;
  if (warps == 0) return;
  Launch("PerLayerInputs", PerLayerInputsKernel, Shape(CeilDiv(warps * kWarpSize, kBlock), kBlock), stream, rows, task,
         out);
}

void ConvertRows(gpuStream stream, RowCount rows, int width, RowInput x, RowOutput out) {
  LaunchVectors("ConvertRows", stream, rows, width, ConvertVector{x, out});
}

void Softcap(gpuStream stream, RowCount rows, int width, RowInput x, float cap, float* out) {
  LaunchVectors("Softcap", stream, rows, width, SoftcapVector{x, cap, out});
}

void GatherRows(gpuStream stream, RowCount rows, int width, RowInput x, const int32_t* kept, float* out) {
  LaunchVectors("GatherRows", stream, rows, width, GatherVector{x, kept, out});
}

void CheckFinite(gpuStream stream, RowCount rows, int width, const float* x, FiniteCheck check) {
  LaunchVectors("CheckFinite", stream, rows, width, CheckVector{x, check});
}

}  // namespace lapidary::gpu
