#include "kernels/gpu/matmul_batch.h"

#include <algorithm>
#include <cmath>

#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/gelu.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/row_vectors.h"

// A block makes a tile of outputs for up to kRows rows over a range of columns, the outputs as the rows of the tensor
// cores' products and the rows of x as their columns. Chunks of 64 columns of both pass through a ring of stages; in
// shared memory a row of a chunk has 8 units of 16 bytes, unit u in place u ^ (row % 8), so that neither copies nor
// ldmatrix meet in a bank.
namespace lapidary::gpu {
namespace batch {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kUnits = 8, kUnitColumns = 8, kChunk = kUnits * kUnitColumns, kRowBytes = 2 * kChunk;
constexpr int kLeastChunks = 2;  // of a split
constexpr int kMostSplits = 12;

template <int kRowsOfX, int kTermsOfX, bool kIsGated>
struct Tiling {
  static constexpr int kRows = kRowsOfX, kTerms = kTermsOfX;
  static constexpr bool kGated = kIsGated;
  static constexpr int kWarpTiles = kRows > 64 ? 2 : 1;  // of 16 outputs
  static constexpr int kOutputs = kWarps * kWarpTiles * 16;
  static constexpr int kWeightBytes = kOutputs * kRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kTerms * kRows * kRowBytes;
  // Blocks of a multiprocessor, and stages that its shared memory has room for.
  static constexpr int kBlocks = kStageBytes <= (16 << 10) ? 3 : (kStageBytes <= (32 << 10) ? 2 : 1);
  static constexpr int kRoom = (224 << 10) / kBlocks / kStageBytes;
  static constexpr int kStages = kRoom < 6 ? kRoom : 6;
  static_assert(kStages >= 3);
};

struct Task {
  MatmulBatchArgs a;
  int splits;
  float softcap;
  float* y;
  RowOutput out;
};

// What a block makes.
template <typename T>
struct Tile {
  int first_row, first_output, split;
  int begin, end;  // chunks

  __device__ __forceinline__ explicit Tile(const Task& task) {
    const int row_tiles = (task.a.rows + T::kRows - 1) / T::kRows, index = static_cast<int>(blockIdx.x);
    const int chunks = (task.a.cols + kChunk - 1) / kChunk, item = index / row_tiles;
    first_row = index % row_tiles * T::kRows;
    split = item % task.splits;
    first_output = item / task.splits * (T::kGated ? T::kOutputs / 2 : T::kOutputs);
    begin = split * chunks / task.splits;
    end = (split + 1) * chunks / task.splits;
  }
};

// The row of the weights that is output `index` of the tile; one that exists for those that do not. Of 16 outputs that
// are gated, 8 are gates, and then come what they gate.
template <typename T>
__device__ __forceinline__ int WeightRow(const Task& task, const Tile<T>& tile, int index) {
  if (!T::kGated) {
    const int row = tile.first_output + index;
    return row < task.a.outputs ? row : task.a.outputs - 1;
  }
  const int half = task.a.outputs / 2, row = tile.first_output + index / 16 * 8 + index % 8;
  return (row < half ? row : half - 1) + (index % 16 < 8 ? 0 : half);
}

// Copies chunks into the ring: each thread one unit of every 16th row.
template <typename T>
struct Loader {
  static constexpr int kRowsAtOnce = kThreads / kUnits;
  static constexpr int kWeightSteps = T::kOutputs / kRowsAtOnce;

  const Task& task;
  const Tile<T>& tile;
  int row, column;  // of the thread, in a chunk
  int place;        // in a stage
  const uint16_t* weights[kWeightSteps];

  __device__ __forceinline__ Loader(const Task& t, const Tile<T>& of) : task(t), tile(of) {
    row = static_cast<int>(threadIdx.x) / kUnits;
    const int unit = static_cast<int>(threadIdx.x) % kUnits;
    column = unit * kUnitColumns;
    place = row * kRowBytes + (unit ^ (row % kUnits)) * 16;
#pragma unroll
    for (int i = 0; i < kWeightSteps; ++i) {
      weights[i] = task.a.w + static_cast<int64_t>(WeightRow<T>(task, tile, i * kRowsAtOnce + row)) * task.a.cols;
    }
  }

  __device__ __forceinline__ void LoadWeights(unsigned char* stage, int chunk) const {
    const int at = chunk * kChunk + column;
    const bool valid = at < task.a.cols;
#pragma unroll
    for (int i = 0; i < kWeightSteps; ++i) {
      CpAsync16OrZero(stage + place + i * kRowsAtOnce * kRowBytes, weights[i] + (valid ? at : 0), valid);
    }
  }

  __device__ __forceinline__ void LoadRows(unsigned char* stage, int chunk) const {
    const int at = chunk * kChunk + column;
    const bool valid = at < task.a.cols;
    const int64_t term_stride = static_cast<int64_t>(task.a.rows) * task.a.cols;
#pragma unroll
    for (int i = 0; i < T::kTerms * T::kRows / kRowsAtOnce; ++i) {
      const int term = i * kRowsAtOnce / T::kRows, wanted = tile.first_row + i * kRowsAtOnce % T::kRows + row;
      const int from = wanted < task.a.rows ? wanted : task.a.rows - 1;
      CpAsync16OrZero(stage + T::kWeightBytes + place + i * kRowsAtOnce * kRowBytes,
                      task.a.x + term * term_stride + static_cast<int64_t>(from) * task.a.cols + (valid ? at : 0),
                      valid);
    }
  }
};

template <typename T>
struct Sums {
  float value[T::kWarpTiles][T::kRows / 8][4] = {};

  // Adds the products of a chunk.
  __device__ __forceinline__ void Add(const unsigned char* stage) {
    const int lane = static_cast<int>(LaneIndex()), swizzle = lane % 8;
    const unsigned char* weights =
        stage + (static_cast<int>(WarpIndex()) * T::kWarpTiles * 16 + lane / 8 % 2 * 8 + lane % 8) * kRowBytes;
    const unsigned char* rows = stage + T::kWeightBytes + (lane / 16 * 8 + lane % 8) * kRowBytes;
#pragma unroll
    for (int k = 0; k < kUnits; k += 2) {
      uint32_t a[T::kWarpTiles][4];
#pragma unroll
      for (int t = 0; t < T::kWarpTiles; ++t) {
        LoadMatrixX4(a[t], weights + t * 16 * kRowBytes + ((k + lane / 16) ^ swizzle) * 16);
      }
#pragma unroll
      for (int j = 0; j < T::kTerms * T::kRows / 8; j += 2) {
        uint32_t b[4];
        LoadMatrixX4(b, rows + j * 8 * kRowBytes + ((k + lane / 8 % 2) ^ swizzle) * 16);
        constexpr int kTiles = T::kRows / 8;
#pragma unroll
        for (int t = 0; t < T::kWarpTiles; ++t) {
          Mma16816(value[t][j % kTiles], a[t], b[0], b[1]);
          Mma16816(value[t][j % kTiles + 1], a[t], b[2], b[3]);
        }
      }
    }
  }
};

template <typename T>
__device__ __forceinline__ void StoreSums(const Task& task, const Tile<T>& tile, const Sums<T>& sums) {
  const int lane = static_cast<int>(LaneIndex());
#pragma unroll
  for (int t = 0; t < T::kWarpTiles; ++t) {
    const int output = tile.first_output + (static_cast<int>(WarpIndex()) * T::kWarpTiles + t) * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < T::kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile.first_row + j * 8 + lane % 4 * 2 + i % 2, column = output + i / 2 * 8;
        if (row >= task.a.rows || column >= task.a.outputs) continue;
        float value = sums.value[t][j][i];
        if (task.softcap > 0) value = task.softcap * tanhf(value / task.softcap);
        task.y[(static_cast<int64_t>(tile.split) * task.a.rows + row) * task.a.outputs + column] = value;
      }
    }
  }
}

// A lane has gate and gated value of one output for two rows; it trades one of them for that of the output beside it.
template <typename T>
__device__ __forceinline__ void StoreGated(const Task& task, const Tile<T>& tile, const Sums<T>& sums) {
  const int lane = static_cast<int>(LaneIndex()), half = task.a.outputs / 2;
  const bool is_even = lane / 4 % 2 == 0;
#pragma unroll
  for (int t = 0; t < T::kWarpTiles; ++t) {
    const int output =
        tile.first_output + (static_cast<int>(WarpIndex()) * T::kWarpTiles + t) * 8 + lane / 4 - (is_even ? 0 : 1);
#pragma unroll
    for (int j = 0; j < T::kRows / 8; ++j) {
      const float(&x)[4] = sums.value[t][j];
      const float first = GeluTanh(x[0]) * x[2], second = GeluTanh(x[1]) * x[3];
      const float other = WarpShuffleXor(is_even ? second : first, 4);
      const int row = tile.first_row + j * 8 + lane % 4 * 2 + (is_even ? 0 : 1);
      if (row >= task.a.rows || output >= half) continue;
      Store2(task.out, static_cast<int64_t>(row) * half + output, is_even ? first : other, is_even ? other : second);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, T::kBlocks) MatmulBatchKernel(const Task task) {
  DependentsMayStart();
  auto* ring = DynamicShared<unsigned char>();
  const Tile<T> tile(task);
  const Loader<T> loader(task, tile);
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (tile.begin + s < tile.end) loader.LoadWeights(ring + s * T::kStageBytes, tile.begin + s);
  }
  WaitForEarlierKernels();
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (tile.begin + s < tile.end) loader.LoadRows(ring + s * T::kStageBytes, tile.begin + s);
    CpAsyncCommit();
  }
  Sums<T> sums;
  int stage = 0, freed = T::kStages - 1;
  for (int chunk = tile.begin; chunk < tile.end; ++chunk) {
    CpAsyncWait<T::kStages - 2>();
    // This chunk is there for all, and all are done with the one before, whose place is filled again.
    __syncthreads();
    if (const int next = chunk + T::kStages - 1; next < tile.end) {
      loader.LoadWeights(ring + freed * T::kStageBytes, next);
      loader.LoadRows(ring + freed * T::kStageBytes, next);
    }
    CpAsyncCommit();
    sums.Add(ring + stage * T::kStageBytes);
    freed = stage;
    stage = stage + 1 == T::kStages ? 0 : stage + 1;
  }
  if constexpr (T::kGated) {
    StoreGated<T>(task, tile, sums);
  } else {
    StoreSums<T>(task, tile, sums);
  }
}

template <typename T>
void LaunchTiles(const char* what, gpuStream stream, const Task& task) {
  const int outputs = T::kGated ? task.a.outputs / 2 : task.a.outputs,
            tile_outputs = T::kGated ? T::kOutputs / 2 : T::kOutputs;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((outputs + tile_outputs - 1) / tile_outputs * task.splits *
                                       ((task.a.rows + T::kRows - 1) / T::kRows));
  shape.block = kThreads;
  shape.shared_bytes = T::kStages * T::kStageBytes;
  shape.dependent = true;
  Launch(what, MatmulBatchKernel<T>, shape, stream, task);
}

template <int kTerms, bool kGated>
void LaunchTerms(const char* what, gpuStream stream, const Task& task) {
  if (task.a.rows <= 16) return LaunchTiles<Tiling<16, kTerms, kGated>>(what, stream, task);
  if (task.a.rows <= 32) return LaunchTiles<Tiling<32, kTerms, kGated>>(what, stream, task);
  // More rows of three terms would need more shared memory than devices before sm_90 have.
  if constexpr (kTerms == 1) {
    if (task.a.rows > 64) return LaunchTiles<Tiling<128, kTerms, kGated>>(what, stream, task);
  }
  LaunchTiles<Tiling<64, kTerms, kGated>>(what, stream, task);
}

template <bool kGated>
void LaunchTask(const char* what, gpuStream stream, const Task& task) {
  if (task.a.rows == 0) return;
  task.a.terms == 3 ? LaunchTerms<3, kGated>(what, stream, task) : LaunchTerms<1, kGated>(what, stream, task);
}

}  // namespace
}  // namespace batch

// Two blocks of 64 outputs for each multiprocessor.
int MatmulBatchSplits(int32_t outputs, int32_t cols, int multiprocessors) {
  const int tiles = (outputs + 63) / 64, chunks = (cols + batch::kChunk - 1) / batch::kChunk;
  return std::max(1, std::min({2 * multiprocessors / tiles, chunks / batch::kLeastChunks, batch::kMostSplits}));
}

void MatmulBatch(const char* what, gpuStream stream, const MatmulBatchArgs& args, int splits, float softcap, float* y) {
  batch::LaunchTask<false>(what, stream, {args, splits, softcap, y, {}});
}

void MatmulBatchGated(const char* what, gpuStream stream, const MatmulBatchArgs& args, const RowOutput& out) {
  batch::LaunchTask<true>(what, stream, {args, 1, 0, nullptr, {nullptr, out.hi, out.lo, out.third}});
}

}  // namespace lapidary::gpu
