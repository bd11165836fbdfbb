#include "kernels/gpu/attention_prefill.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/gpu/attention_prefill_tilings.h"
#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/row_vectors.h"

namespace lapidary::gpu {
namespace {

using namespace prefill;

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kNone = -INFINITY;  // the score of a position that is not seen

template <typename T>
struct SharedTile {
  uint16_t *q, *k, *v, *weights;
  float* stats;  // [kWarpsD, kRows]

  static __device__ __forceinline__ SharedTile Get() {
    uint16_t* base = DynamicShared<uint16_t>();
    uint16_t* weights = base + T::kQuery + 2 * T::kKv;
    return {base, base + T::kQuery, base + T::kQuery + T::kKv, weights,
            reinterpret_cast<float*>(weights + T::kWeights)};
  }
};

// What a block works on.
struct Work {
  QueryTile tile;
  int kv_head, group;
  int first, last;  // positions of the tile's first and last row
  int begin, end;   // positions that some row sees
};

__device__ __forceinline__ Work WorkOfBlock(const AttentionPrefillArgs& args) {
  Work work;
  work.tile = args.tiles[gridDim.x - 1 - blockIdx.x];
  work.kv_head = static_cast<int>(blockIdx.y);
  work.group = args.shape.heads / args.shape.kv_heads;
  if (work.tile.rows == 0) return work;
  work.first = args.positions[work.tile.first_row];
  work.last = args.positions[work.tile.first_row + work.tile.rows - 1];
  const int64_t seen_from = args.shape.window == 0 ? 0 : work.first - args.shape.window + 1;
  work.begin = seen_from > 0 ? static_cast<int>(seen_from) : 0;
  work.end = work.last + 1;
  return work;
}

// Where row m of the tile lies in q and out.
__device__ __forceinline__ int64_t RowOffset(const AttentionPrefillArgs& args, const Work& work, int m) {
  const int64_t row = work.tile.first_row + m / work.group;
  return (row * args.shape.heads + work.kv_head * work.group + m % work.group) * args.shape.head_dim;
}

template <typename T>
__device__ __forceinline__ void LoadQueries(const AttentionPrefillArgs& args, const Work& work, uint16_t* q) {
  for (int at = static_cast<int>(threadIdx.x); at < T::kRows * T::kChunks; at += T::kThreads) {
    const int m = at / T::kChunks, column = at % T::kChunks * 8;
    const bool valid = m < work.tile.rows * work.group && column < args.shape.head_dim;
    const int64_t from = valid ? RowOffset(args, work, m) + column : 0;
    const uint16_t* terms[] = {args.q.hi, args.q.lo, args.q.third};
#pragma unroll
    for (int term = 0; term < T::kTerms; ++term) {
      CpAsync16OrZero(q + (term * T::kRows + m) * T::kStride + column, terms[term] + from, valid);
    }
  }
}

// Starts the copy of the keys (which = 0) or values (1) of positions [at, at + kKeys); those that no row sees are zero,
// whatever the cache holds there. The positions lie in one block of the cache.
template <typename T>
__device__ __forceinline__ void LoadKv(const AttentionPrefillArgs& args, const Work& work, int at, int which,
                                       uint16_t* to) {
  const KvCacheView& cache = args.cache;
  const int sequence = work.tile.sequence, dim = args.shape.head_dim;
  const int64_t block =
      cache.blocks[int64_t{sequence} * cache.max_blocks + at / kBlockPositions - cache.first_block[sequence]];
  const int64_t row = (int64_t{which} * args.shape.kv_heads + work.kv_head) * kBlockPositions + at % kBlockPositions;
  const std::byte* from = cache.data + block * cache.block_bytes + row * dim * (T::kFloatCache ? 4 : 2);
#pragma unroll(T::kFloatCache ? 1 : T::kCopies)
  for (int i = 0; i < T::kCopies; ++i) {
    const int copy = i * T::kThreads + static_cast<int>(threadIdx.x);
    const int key = copy / T::kChunks, column = copy % T::kChunks * 8;
    const bool valid = at + key >= work.begin && at + key < work.end && column < dim;
    uint16_t* hi = to + key * T::kStride + column;
    if constexpr (T::kFloatCache) {
      const float* values = reinterpret_cast<const float*>(from) + key * dim + column;
      constexpr int kTermStride = T::kKeys * T::kStride;
      RowOutput out{nullptr, hi};
      if constexpr (T::kTerms == 3) out.lo = hi + kTermStride, out.third = hi + 2 * kTermStride;
      Store8(out, 0, valid ? Load8(values) : Float8{});
    } else {
      CpAsync16OrZero(hi, reinterpret_cast<const uint16_t*>(from) + key * dim + column, valid);
    }
  }
}

// A warp's part of the work. Rows: g = lane / 4 and g + 8 of its 16.
template <typename T>
struct WarpState {
  int warp_m, warp_d;
  int position[2];  // the last that each row sees; -1: no such row
  int seen_from[2];
  float top[2], sum[2];  // of the scores in powers of two; this lane's share of the weights
  float out[T::kOutTiles][4];
};

template <typename T>
__device__ __forceinline__ WarpState<T> StateOfWarp(const AttentionPrefillArgs& args, const Work& work) {
  WarpState<T> state;
  const int warp = static_cast<int>(WarpIndex());
  state.warp_m = warp % T::kWarpsM;
  state.warp_d = warp / T::kWarpsM;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = (state.warp_m * 16 + static_cast<int>(LaneIndex()) / 4 + 8 * i) / work.group;
    state.position[i] = token < work.tile.rows ? args.positions[work.tile.first_row + token] : -1;
    const int64_t seen_from = args.shape.window == 0 ? 0 : state.position[i] - args.shape.window + 1;
    state.seen_from[i] = static_cast<int>(seen_from);
    state.top[i] = kNone;
    state.sum[i] = 0;
  }
#pragma unroll
  for (int tile = 0; tile < T::kOutTiles; ++tile) {
    for (int i = 0; i < 4; ++i) state.out[tile][i] = 0;
  }
  return state;
}

// d += a b of the terms, without the products that are beyond a float's 24 bits.
template <typename T, int kTiles>
__device__ __forceinline__ void MultiplyTerms(float (*d)[4], const uint32_t (&a)[T::kTerms][4],
                                              const uint32_t (&b)[kTiles][2], int kv_term) {
#pragma unroll
  for (int term = 0; term < T::kTerms; ++term) {
    if (term + kv_term > 2) continue;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) Mma16816(d[tile], a[term], b[tile][0], b[tile][1]);
  }
}

template <typename T>
__device__ __forceinline__ void Scores(const SharedTile<T>& shared, const WarpState<T>& state,
                                       float (&scores)[T::kScoreTiles][4]) {
  const int lane = static_cast<int>(LaneIndex());
#pragma unroll
  for (int tile = 0; tile < T::kScoreTiles; ++tile) {
    for (int i = 0; i < 4; ++i) scores[tile][i] = 0;
  }
  const uint16_t* q = shared.q + (state.warp_m * 16 + lane % 16) * T::kStride + lane / 16 * 8;
  const uint16_t* k =
      shared.k + (state.warp_d * T::kWarpKeys + lane / 16 * 8 + lane % 8) * T::kStride + lane / 8 % 2 * 8;
#pragma unroll 4
  for (int column = 0; column < T::kDim; column += 16) {
    uint32_t a[T::kTerms][4];
    for (int term = 0; term < T::kTerms; ++term) {
      LoadMatrixX4(a[term], q + term * T::kRows * T::kStride + column);
    }
#pragma unroll
    for (int kv_term = 0; kv_term < T::kKvTerms; ++kv_term) {
      const uint16_t* keys = k + kv_term * T::kKeys * T::kStride + column;
      uint32_t b[T::kScoreTiles][2];
      if constexpr (T::kScoreTiles == 1) {
        LoadMatrixX2(b[0], keys);
      } else {
#pragma unroll
        for (int tile = 0; tile < T::kScoreTiles; tile += 2) {
          uint32_t both[4];
          LoadMatrixX4(both, keys + tile * 8 * T::kStride);
          b[tile][0] = both[0], b[tile][1] = both[1], b[tile + 1][0] = both[2], b[tile + 1][1] = both[3];
        }
      }
      MultiplyTerms<T, T::kScoreTiles>(scores, a, b, kv_term);
    }
  }
}

// Scores of position `at` on become powers of two, those not seen kNone; returns the rows' maxima over this warp's
// keys.
template <typename T>
__device__ __forceinline__ void ScaleAndMask(const Work& work, const AttentionPrefillArgs& args,
                                             const WarpState<T>& state, int at, float (&scores)[T::kScoreTiles][4],
                                             float (&top)[2]) {
  const int key = at + state.warp_d * T::kWarpKeys + static_cast<int>(LaneIndex()) % 4 * 2;
  const bool all_seen =
      at + T::kKeys - 1 <= work.first && (args.shape.window == 0 || at > work.last - args.shape.window);
  top[0] = top[1] = kNone;
#pragma unroll
  for (int tile = 0; tile < T::kScoreTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& score = scores[tile][i];
      const int position = key + tile * 8 + i % 2;
      const bool seen = all_seen || (position <= state.position[i / 2] && position >= state.seen_from[i / 2]);
      score = seen ? score * kLog2E : kNone;
      top[i / 2] = fmaxf(top[i / 2], score);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    top[i] = fmaxf(top[i], WarpShuffleXor(top[i], 1));
    top[i] = fmaxf(top[i], WarpShuffleXor(top[i], 2));
  }
}

// Every warp of the same rows gets what `combine` makes of their values; value[i] belongs to row g + 8 i.
template <typename T, typename F>
__device__ __forceinline__ void CombineWarps(const SharedTile<T>& shared, const WarpState<T>& state, float (&value)[2],
                                             const F& combine) {
  if constexpr (T::kWarpsD > 1) {
    const int lane = static_cast<int>(LaneIndex()), row = state.warp_m * 16 + lane / 4;
    if (lane % 4 == 0) {
      shared.stats[state.warp_d * T::kRows + row] = value[0];
      shared.stats[state.warp_d * T::kRows + row + 8] = value[1];
    }
    NamedBarrier(1 + state.warp_m, kWarpSize * T::kWarpsD);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      value[i] = shared.stats[row + 8 * i];
      for (int d = 1; d < T::kWarpsD; ++d) value[i] = combine(value[i], shared.stats[d * T::kRows + row + 8 * i]);
    }
  }
}

// Scores become weights relative to the rows' new maxima; sums and results so far are scaled to them.
template <typename T>
__device__ __forceinline__ void Reweight(WarpState<T>& state, const float (&top)[2],
                                         float (&scores)[T::kScoreTiles][4]) {
  float factor[2], base[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float now = fmaxf(state.top[i], top[i]);
    base[i] = now == kNone ? 0.0f : now;
    factor[i] = exp2f(state.top[i] - base[i]);
    state.top[i] = now;
    state.sum[i] *= factor[i];
  }
#pragma unroll
  for (int tile = 0; tile < T::kScoreTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[tile][i] = exp2f(scores[tile][i] - base[i / 2]);
      state.sum[i / 2] += scores[tile][i];
    }
  }
  if (!WarpAny(factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
  for (int tile = 0; tile < T::kOutTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.out[tile][i] *= factor[i / 2];
  }
}

// Where warps share rows, each needs the weights of all keys.
template <typename T>
__device__ __forceinline__ void ShareWeights(const SharedTile<T>& shared, const WarpState<T>& state,
                                             const float (&weights)[T::kScoreTiles][4]) {
  const int lane = static_cast<int>(LaneIndex());
  uint16_t* to =
      shared.weights + (state.warp_m * 16 + lane / 4) * T::kWeightStride + state.warp_d * T::kWarpKeys + lane % 4 * 2;
#pragma unroll
  for (int tile = 0; tile < T::kScoreTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t terms[T::kTerms];
      SplitBf16Pair(weights[tile][2 * half], weights[tile][2 * half + 1], terms);
      uint16_t* at = to + half * 8 * T::kWeightStride + tile * 8;
#pragma unroll
      for (int term = 0; term < T::kTerms; ++term) {
        *reinterpret_cast<uint32_t*>(at + term * T::kRows * T::kWeightStride) = terms[term];
      }
    }
  }
}

// The weights of keys [16 step, 16 step + 16) as a fragment. weights [kScoreTiles] are this warp's own.
template <typename T>
__device__ __forceinline__ void WeightFragment(const SharedTile<T>& shared, const WarpState<T>& state,
                                               const float (*weights)[4], int step, uint32_t (&a)[T::kTerms][4]) {
  if constexpr (T::kWarpsD > 1) {
    const int lane = static_cast<int>(LaneIndex());
    const uint16_t* from =
        shared.weights + (state.warp_m * 16 + lane % 16) * T::kWeightStride + step * 16 + lane / 16 * 8;
    for (int term = 0; term < T::kTerms; ++term) {
      LoadMatrixX4(a[term], from + term * T::kRows * T::kWeightStride);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&tile)[4] = weights[2 * step + i / 2];
      uint32_t terms[T::kTerms];
      SplitBf16Pair(tile[i % 2 * 2], tile[i % 2 * 2 + 1], terms);
#pragma unroll
      for (int term = 0; term < T::kTerms; ++term) a[term][i] = terms[term];
    }
  }
}

template <typename T>
__device__ __forceinline__ void AddValues(const SharedTile<T>& shared, WarpState<T>& state, const float (*weights)[4]) {
  const int lane = static_cast<int>(LaneIndex());
  const uint16_t* v = shared.v + lane % 16 * T::kStride + state.warp_d * T::kWarpDims + lane / 16 * 8;
#pragma unroll
  for (int step = 0; step < T::kKeys / 16; ++step) {
    uint32_t a[T::kTerms][4];
    WeightFragment(shared, state, weights, step, a);
#pragma unroll
    for (int tile = 0; tile < T::kOutTiles; tile += 2) {
#pragma unroll
      for (int kv_term = 0; kv_term < T::kKvTerms; ++kv_term) {
        uint32_t both[4];
        LoadMatrixX4Trans(both, v + (kv_term * T::kKeys + step * 16) * T::kStride + tile * 8);
        const uint32_t b[2][2] = {{both[0], both[1]}, {both[2], both[3]}};
        MultiplyTerms<T, 2>(&state.out[tile], a, b, kv_term);
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void StoreResults(const AttentionPrefillArgs& args, const Work& work,
                                             const WarpState<T>& state, const float (&sum)[2]) {
  const int lane = static_cast<int>(LaneIndex());
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (state.position[half] < 0) continue;
    const int64_t row = RowOffset(args, work, state.warp_m * 16 + lane / 4 + 8 * half);
    const float scale = 1.0f / sum[half];
#pragma unroll
    for (int tile = 0; tile < T::kOutTiles; ++tile) {
      const int column = state.warp_d * T::kWarpDims + tile * 8 + lane % 4 * 2;
      if (column >= args.shape.head_dim) continue;
      Store2(args.out, row + column, state.out[tile][2 * half] * scale, state.out[tile][2 * half + 1] * scale);
    }
  }
}

// Keys and values have a buffer each: the values of a tile arrive while its scores are computed, the next keys while
// its values are added. Warps without rows only copy.
template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1) PrefillKernel(AttentionPrefillArgs args) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const Work work = WorkOfBlock(args);
  if (work.tile.rows == 0) return;
  const SharedTile<T> shared = SharedTile<T>::Get();
  WarpState<T> state = StateOfWarp<T>(args, work);
  const bool has_rows = state.warp_m * 16 < work.tile.rows * work.group;
  const int start = work.begin / T::kKeys * T::kKeys;
  LoadQueries<T>(args, work, shared.q);
  LoadKv<T>(args, work, start, 0, shared.k);
  CpAsyncCommit();
  for (int at = start; at < work.end; at += T::kKeys) {
    LoadKv<T>(args, work, at, 1, shared.v);
    CpAsyncCommit();
    CpAsyncWait<1>();
    __syncthreads();
    float scores[T::kScoreTiles][4];
    if (has_rows) Scores(shared, state, scores);
    __syncthreads();
    if (at + T::kKeys < work.end) LoadKv<T>(args, work, at + T::kKeys, 0, shared.k);
    CpAsyncCommit();
    if (has_rows) {
      float top[2];
      ScaleAndMask(work, args, state, at, scores, top);
      CombineWarps(shared, state, top, [](float a, float b) { return fmaxf(a, b); });
      Reweight(state, top, scores);
      if constexpr (T::kWarpsD > 1) ShareWeights(shared, state, scores);
    }
    CpAsyncWait<1>();
    __syncthreads();
    if (has_rows) AddValues(shared, state, scores);
    __syncthreads();
  }
  CpAsyncWait<0>();
  if (!has_rows) return;
  float sum[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i] = state.sum[i] + WarpShuffleXor(state.sum[i], 1);
    sum[i] += WarpShuffleXor(sum[i], 2);
  }
  CombineWarps(shared, state, sum, [](float a, float b) { return a + b; });
  StoreResults(args, work, state, sum);
}

}  // namespace

PrefillTiling ChoosePrefillTiling(const PrefillShape& shape, int64_t shared_bytes_per_block) {
  if (shape.head_dim <= 0 || shape.head_dim % 16 != 0 || shape.head_dim > kMaxHeadDim) {
    Throw(ErrorKind::kUnsupported, "attention on the GPU: found head_dim " + std::to_string(shape.head_dim) +
                                       ", wanted a multiple of 16 up to " + std::to_string(kMaxHeadDim));
  }
  if (shape.terms != 1 && shape.terms != 3) {
    Throw(ErrorKind::kUnsupported,
          "attention on the GPU: found " + std::to_string(shape.terms) + " bf16 terms, wanted 1 or 3");
  }
  const int group = shape.heads / shape.kv_heads;
  size_t wanted = 0;
  int most_heads = 0;
  for (const bool is_small : {false, true}) {
    const PrefillTiling tiling = WithTiling(shape, is_small, [&](auto type) {
      using T = decltype(type);
      most_heads = T::kRows;
      return PrefillTiling{T::kRows / group, is_small, T::kSharedBytes};
    });
    wanted = tiling.shared_bytes;
    if (static_cast<int64_t>(wanted) <= shared_bytes_per_block && tiling.rows > 0) return tiling;
  }
  Throw(ErrorKind::kUnsupported, "attention on the GPU: found " + std::to_string(shared_bytes_per_block) +
                                     " bytes of shared memory and " + std::to_string(group) +
                                     " query heads a K/V head, wanted " + std::to_string(wanted) + " and at most " +
                                     std::to_string(most_heads));
}

std::vector<QueryTile> CutIntoTiles(std::span<const int32_t> sequences, int tile_rows) {
  std::vector<QueryTile> tiles;
  for (size_t row = 0; row < sequences.size(); ++row) {
    const bool starts = tiles.empty() || tiles.back().sequence != sequences[row] || tiles.back().rows == tile_rows;
    if (starts) tiles.push_back({static_cast<int32_t>(row), 0, sequences[row]});
    ++tiles.back().rows;
  }
  return tiles;
}

void AttentionPrefill(gpuStream stream, const AttentionPrefillArgs& args) {
  if (args.tile_count == 0) return;
  LaunchShape launch;
  launch.grid_x = static_cast<unsigned>(args.tile_count);
  launch.grid_y = static_cast<unsigned>(args.shape.kv_heads);
  launch.shared_bytes = args.tiling.shared_bytes;
  launch.dependent = true;
  WithTiling(args.shape, args.tiling.is_small, [&](auto type) {
    using T = decltype(type);
    launch.block = T::kThreads;
    Launch("AttentionPrefill", PrefillKernel<T>, launch, stream, args);
  });
}

}  // namespace lapidary::gpu
