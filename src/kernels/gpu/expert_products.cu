#include <cstddef>

#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/gelu.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/expert_parts.h"
#include "kernels/gpu/row_vectors.h"

// The products of all experts, y = x W^T, in one launch: a block takes one tile of an expert's rows and some of its
// outputs, and walks over k through a ring of stages that cp.async fills.
namespace lapidary::gpu {
namespace {

constexpr int kStepK = 64;               // k of a stage
constexpr int kStride = kStepK + 8;      // values of a row in shared memory: ldmatrix then meets all banks
constexpr int kStepChunks = kStepK / 8;  // of 16 bytes a row

// kWarpsM x kWarpsN warps, each with kTilesM x kTilesN tiles of 16 rows x 8 outputs.
template <int kWarpsM_, int kTilesM_, int kWarpsN_, int kTilesN_, int kTerms_, int kStages_>
struct Cut {
  static constexpr int kWarpsM = kWarpsM_, kTilesM = kTilesM_, kWarpsN = kWarpsN_, kTilesN = kTilesN_;
  static constexpr int kTerms = kTerms_, kStages = kStages_;
  static constexpr int kRows = 16 * kTilesM * kWarpsM, kOutputs = 8 * kTilesN * kWarpsN;
  static constexpr int kThreads = kWarpSize * kWarpsM * kWarpsN;
  static constexpr int kStage = (kTerms * kRows + kOutputs) * kStride;  // values
  static constexpr size_t kSharedBytes = sizeof(uint16_t) * kStages * kStage;
};

struct Task {
  RowTerms x;               // input rows [.., k]
  const uint16_t* weights;  // [experts, outputs of W, k]
  int k, outputs;           // outputs: of this product (after the gate: width)
  int top_k;                // > 0: slot s reads row choice_of_slot[s] / top_k, else row s
  ExpertWorkspace::Parts parts;
};

// Which row of an expert's W is output n of a block that begins at `first`, or -1. kGated: each warp's outputs are half
// gates, half the values that they gate, of the same kOutputs / 2 of `width` outputs.
template <typename C, bool kGated>
__device__ __forceinline__ int WeightRow(int first, int n, int outputs) {
  if constexpr (kGated) {
    constexpr int kWarpOutputs = 8 * C::kTilesN, kHalf = kWarpOutputs / 2;
    const int in_warp = n % kWarpOutputs;
    const int output = first + n / kWarpOutputs * kHalf + in_warp % kHalf;
    return output < outputs ? output + in_warp / kHalf * outputs : -1;
  } else {
    return first + n < outputs ? first + n : -1;
  }
}

// Starts the copies of k [at, at + kStepK) of the tile's rows and of the block's outputs.
template <typename C, bool kGated>
__device__ __forceinline__ void LoadStage(const Task& task, const ExpertTile& tile, const int32_t* rows, int first,
                                          int at, uint16_t* to) {
  const int column = at + static_cast<int>(threadIdx.x) % kStepChunks * 8;
  const bool in_k = column < task.k;
  constexpr int kRowsAtOnce = C::kThreads / kStepChunks;
  const int begin = static_cast<int>(threadIdx.x) / kStepChunks;
  uint16_t* mine = to + begin * kStride + static_cast<int>(threadIdx.x) % kStepChunks * 8;
#pragma unroll
  for (int i = 0; i < C::kRows; i += kRowsAtOnce) {
    if (C::kRows % kRowsAtOnce != 0 && begin + i >= C::kRows) break;
    const bool valid = in_k && begin + i < tile.rows;
    const int64_t from = valid ? int64_t{rows[begin + i]} * task.k + column : 0;
    const uint16_t* terms[] = {task.x.hi, task.x.lo, task.x.third};
#pragma unroll
    for (int term = 0; term < C::kTerms; ++term) {
      CpAsync16OrZero(mine + (term * C::kRows + i) * kStride, terms[term] + from, valid);
    }
  }
  const int64_t expert_rows = kGated ? 2 * task.outputs : task.outputs;
  const uint16_t* weights = task.weights + tile.expert * expert_rows * task.k;
  mine += C::kTerms * C::kRows * kStride;
#pragma unroll
  for (int i = 0; i < C::kOutputs; i += kRowsAtOnce) {
    const int row = WeightRow<C, kGated>(first, begin + i, task.outputs);
    const bool valid = in_k && row >= 0;
    CpAsync16OrZero(mine + i * kStride, weights + (valid ? int64_t{row} * task.k + column : 0), valid);
  }
}

template <typename C>
__device__ __forceinline__ void MultiplyStage(const uint16_t* stage, int warp_m, int warp_n,
                                              float (&sums)[C::kTilesM][C::kTilesN][4]) {
  const int lane = static_cast<int>(LaneIndex());
  const uint16_t* x = stage + (warp_m * 16 * C::kTilesM + lane % 16) * kStride + lane / 16 * 8;
  const uint16_t* w =
      stage + (C::kTerms * C::kRows + warp_n * 8 * C::kTilesN + lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kStepK; k += 16) {
    uint32_t b[C::kTilesN][2];
#pragma unroll
    for (int n = 0; n < C::kTilesN; n += 2) {
      uint32_t both[4];
      LoadMatrixX4(both, w + n * 8 * kStride + k);
      b[n][0] = both[0], b[n][1] = both[1], b[n + 1][0] = both[2], b[n + 1][1] = both[3];
    }
#pragma unroll
    for (int term = 0; term < C::kTerms; ++term) {
#pragma unroll
      for (int m = 0; m < C::kTilesM; ++m) {
        uint32_t a[4];
        LoadMatrixX4(a, x + (term * C::kRows + m * 16) * kStride + k);
#pragma unroll
        for (int n = 0; n < C::kTilesN; ++n) Mma16816(sums[m][n], a, b[n][0], b[n][1]);
      }
    }
  }
}

// gelu_tanh(gate) * up as bf16 terms.
template <typename C>
__device__ __forceinline__ void StoreGated(const Task& task, int64_t slot, int output, const float* gate,
                                           const float* up) {
  if (output >= task.outputs) return;
  RowOutput out{nullptr, task.parts.hi};
  if (C::kTerms == 3) out.lo = task.parts.lo, out.third = task.parts.third;
  Store2(out, slot * task.outputs + output, GeluTanh(gate[0]) * up[0], GeluTanh(gate[1]) * up[1]);
}

struct alignas(8) Float2 {
  float x, y;
};

template <typename C, bool kGated>
__device__ __forceinline__ void StoreTile(const Task& task, const ExpertTile& tile, int first, int warp_m, int warp_n,
                                          const float (&sums)[C::kTilesM][C::kTilesN][4]) {
  const int lane = static_cast<int>(LaneIndex());
  constexpr int kTiles = kGated ? C::kTilesN / 2 : C::kTilesN;
#pragma unroll
  for (int m = 0; m < C::kTilesM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (warp_m * C::kTilesM + m) * 16 + lane / 4 + 8 * half;
      if (row >= tile.rows) continue;
      const int64_t slot = tile.first_slot + row;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int output = first + (warp_n * kTiles + n) * 8 + lane % 4 * 2;
        const float* value = sums[m][n] + 2 * half;
        if constexpr (kGated) {
          StoreGated<C>(task, slot, output, value, sums[m][n + kTiles] + 2 * half);
        } else if (output < task.outputs) {
          *reinterpret_cast<Float2*>(task.parts.results + slot * task.outputs + output) = {value[0], value[1]};
        }
      }
    }
  }
}

template <typename C, bool kGated>
__global__ void __launch_bounds__(C::kThreads) ExpertKernel(Task task) {
  LAPIDARY_SHARED(rows, int32_t[C::kRows]);
  DependentsMayStart();
  WaitForEarlierKernels();
  if (static_cast<int>(blockIdx.y) >= *task.parts.tile_count) return;
  const ExpertTile tile = task.parts.tiles[blockIdx.y];
  const int first = static_cast<int>(blockIdx.x) * (kGated ? C::kOutputs / 2 : C::kOutputs);
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows; i += C::kThreads) {
    const int slot = tile.first_slot + i;
    rows[i] = task.top_k > 0 ? task.parts.choice_of_slot[slot] / task.top_k : slot;
  }
  __syncthreads();
  uint16_t* ring = DynamicShared<uint16_t>();
  const int steps = (task.k + kStepK - 1) / kStepK;
#pragma unroll
  for (int step = 0; step < C::kStages - 1; ++step) {
    if (step < steps) LoadStage<C, kGated>(task, tile, rows, first, step * kStepK, ring + step * C::kStage);
    CpAsyncCommit();
  }
  const int warp_m = static_cast<int>(WarpIndex()) % C::kWarpsM, warp_n = static_cast<int>(WarpIndex()) / C::kWarpsM;
  const bool has_rows = warp_m * C::kTilesM * 16 < tile.rows;
  float sums[C::kTilesM][C::kTilesN][4] = {};
  for (int step = 0; step < steps; ++step) {
    CpAsyncWait<C::kStages - 2>();
    __syncthreads();
    const int ahead = step + C::kStages - 1;
    if (ahead < steps) {
      LoadStage<C, kGated>(task, tile, rows, first, ahead * kStepK, ring + ahead % C::kStages * C::kStage);
    }
    CpAsyncCommit();
    if (has_rows) MultiplyStage<C>(ring + step % C::kStages * C::kStage, warp_m, warp_n, sums);
  }
  CpAsyncWait<0>();
  StoreTile<C, kGated>(task, tile, first, warp_m, warp_n, sums);
}

template <typename C, bool kGated>
void LaunchProduct(const char* what, gpuStream stream, int64_t tiles, const Task& task) {
  constexpr int kOutputs = kGated ? C::kOutputs / 2 : C::kOutputs;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((task.outputs + kOutputs - 1) / kOutputs);
  shape.grid_y = static_cast<unsigned>(tiles);
  shape.block = C::kThreads;
  shape.shared_bytes = C::kSharedBytes;
  shape.dependent = true;
  Launch(what, ExpertKernel<C, kGated>, shape, stream, task);
}

template <bool kGated, int kTerms>
void LaunchProduct(const char* what, gpuStream stream, int tile_rows, int64_t tiles, const Task& task) {
  switch (tile_rows) {
    case kFewTileRows:
      return LaunchProduct<Cut<1, 1, 4, 2, kTerms, 5>, kGated>(what, stream, tiles, task);
    case kSomeTileRows:
      return LaunchProduct<Cut<2, 2, 2, 8, kTerms, 3>, kGated>(what, stream, tiles, task);
    default:
      return LaunchProduct<Cut<4, 2, 2, 8, kTerms, kTerms == 1 ? 3 : 2>, kGated>(what, stream, tiles, task);
  }
}

}  // namespace

void ExpertProducts(gpuStream stream, int32_t max_rows, const RowTerms& x, const ExpertWeights& weights,
                    const ExpertWorkspace& workspace) {
  const ExpertShape& shape = workspace.shape();
  const ExpertWorkspace::Parts& parts = workspace.parts();
  const int tile_rows = ExpertTileRows(shape, max_rows);
  const int64_t tiles = ExpertTileCount(shape, max_rows);
  const Task gate_up{x, weights.gate_up, shape.hidden, shape.width, shape.top_k, parts};
  const Task down{{parts.hi, parts.lo, parts.third}, weights.down, shape.width, shape.hidden, 0, parts};
  if (x.third != nullptr) {
    LaunchProduct<true, 3>("ExpertsGateUp", stream, tile_rows, tiles, gate_up);
    LaunchProduct<false, 3>("ExpertsDown", stream, tile_rows, tiles, down);
  } else {
    LaunchProduct<true, 1>("ExpertsGateUp", stream, tile_rows, tiles, gate_up);
    LaunchProduct<false, 1>("ExpertsDown", stream, tile_rows, tiles, down);
  }
}

}  // namespace lapidary::gpu
