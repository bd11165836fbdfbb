#pragma once

#include <cmath>

#include "kernels/gpu/attention_decode_segments.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/mma.h"

// Parts of attention_decode.cu: the products and the softmax of a chunk.
namespace lapidary::gpu::decode {

// The query heads of the segment's tile, normed and rotated, as two terms; missing heads are zero. One warp for each
// head.
template <int kDim>
__device__ __forceinline__ void LoadQuery(const KernelArgs& args, const Segment& s, const float* weight,
                                          uint16_t* query) {
  using Vector = HeadVector<kDim>;
  constexpr int kStride = Traits<kDim, true>::kQueryStride;
  const int group = args.heads / args.kv_heads, head = s.head_tile * kTileHeads + static_cast<int>(WarpIndex());
  Vector x{};
  if (head < group) {
    x.Load(args.a.q, s.row, (s.kv_head * group + head) * kDim);
    typename Vector::Angles angles;
    angles.Load(args.a.rope, s.row);  // before the norm waits for x
    x.Norm(args.a.eps);
    Vector w;
    w.Load(weight);
    x.Multiply(w);
    x.Rotate(angles);
  }
  uint16_t* hi = query + WarpIndex() * kStride;
  uint16_t* lo = hi + kTileHeads * kStride;
#pragma unroll
  for (int i = 0; i < Vector::kLoads; ++i) {
    const int at = Vector::Index(i);
    if (at >= Vector::kHalf) continue;
#pragma unroll
    for (int j = 0; j < Vector::kWide; ++j) {
      const auto low = SplitBf16(x.low[i].v[j]), high = SplitBf16(x.high[i].v[j]);
      hi[at + j] = low.hi;
      lo[at + j] = low.lo;
      hi[at + j + Vector::kHalf] = high.hi;
      lo[at + j + Vector::kHalf] = high.lo;
    }
  }
}

// The warp's part of the columns of the query: [steps][fragment].
template <int kDim, bool kBf16>
__device__ __forceinline__ void LoadQueryPart(const uint16_t* query,
                                              uint32_t (&part)[Traits<kDim, kBf16>::kPartSteps][4]) {
  using T = Traits<kDim, kBf16>;
  const int lane = static_cast<int>(LaneIndex());
  const int first = static_cast<int>(WarpIndex()) / T::kScoreTiles % T::kParts * T::kPartSteps * 16;
#pragma unroll
  for (int i = 0; i < T::kPartSteps; ++i) {
    LoadMatrixX4(part[i], query + lane % 16 * T::kQueryStride + first + i * 16 + lane / 16 * 8);
  }
}

// The keys (k 2t.., n g) and (k 2t+8.., n g) of two steps of 16 columns, n one of 8 positions, and their low terms.
template <int kDim, bool kBf16>
struct KeyFragments;

template <int kDim>
struct KeyFragments<kDim, true> {
  uint32_t hi[4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    const int lane = static_cast<int>(LaneIndex());
    LoadMatrixX4(hi, slot + (position + lane % 8) * Traits<kDim, true>::kRowBytes + (column + lane / 8 * 8) * 2);
  }
};

template <int kDim>
struct KeyFragments<kDim, false> {
  uint32_t hi[4], lo[4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    const int lane = static_cast<int>(LaneIndex());
    const auto* row = reinterpret_cast<const float*>(slot + (position + lane / 4) * Traits<kDim, false>::kRowBytes) +
                      column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto pair = *reinterpret_cast<const FloatVector<2>*>(row + i * 8);
      const auto terms = SplitBf16Pair(pair.v[0], pair.v[1]);
      hi[i] = terms.hi;
      lo[i] = terms.lo;
    }
  }
};

// scores [kParts, kTileHeads, kScoreStride] of one chunk of keys, apart for each part of the columns.
template <int kDim, bool kBf16>
__device__ __forceinline__ void Scores(const unsigned char* slot,
                                       const uint32_t (&query)[Traits<kDim, kBf16>::kPartSteps][4], float* scores) {
  using T = Traits<kDim, kBf16>;
  const int lane = static_cast<int>(LaneIndex()), tile = static_cast<int>(WarpIndex()) % T::kScoreTiles;
  const int part = static_cast<int>(WarpIndex()) / T::kScoreTiles;
  if (part >= T::kParts) return;
  float even[4] = {}, odd[4] = {};
#pragma unroll
  for (int i = 0; i < T::kPartSteps; i += 2) {
    KeyFragments<kDim, kBf16> k;
    k.Load(slot, tile * 8, (part * T::kPartSteps + i) * 16);
    Mma16816(even, query[i], k.hi[0], k.hi[1]);
    Mma16816(odd, query[i + 1], k.hi[2], k.hi[3]);
    if constexpr (!kBf16) {
      Mma16816(even, query[i], k.lo[0], k.lo[1]);
      Mma16816(odd, query[i + 1], k.lo[2], k.lo[3]);
    }
  }
  float* out = scores + (part * kTileHeads + lane / 4) * T::kScoreStride + tile * 8 + lane % 4 * 2;
  *reinterpret_cast<FloatVector<2>*>(out) = {
      {(even[0] + odd[0]) + (even[2] + odd[2]), (even[1] + odd[1]) + (even[3] + odd[3])}};
}

// Values (k 2t.., n g), (k 2t+8.., n g) of 16 positions k and two tiles of 8 columns n.
template <int kDim, bool kBf16>
struct ValueFragments;

template <int kDim>
struct ValueFragments<kDim, true> {
  uint32_t hi[4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    const int lane = static_cast<int>(LaneIndex());
    LoadMatrixX4Trans(hi, slot + (position + lane % 16) * Traits<kDim, true>::kRowBytes + (column + lane / 16 * 8) * 2);
  }
};

template <int kDim>
struct ValueFragments<kDim, false> {
  uint32_t hi[4], lo[4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    constexpr int kRowFloats = Traits<kDim, false>::kRowBytes / 4;
    const int lane = static_cast<int>(LaneIndex());
    const auto* at = reinterpret_cast<const float*>(slot) + (position + lane % 4 * 2) * kRowFloats + column + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = at + i % 2 * 8 * kRowFloats + i / 2 * 8;
      const auto terms = SplitBf16Pair(pair[0], pair[kRowFloats]);
      hi[i] = terms.hi;
      lo[i] = terms.lo;
    }
  }
};

// The softmax so far in a warp: of head lane / 4, with the warp's columns of the values.
template <int kValueTiles>
struct State {
  float max = -INFINITY;
  float sum = 0.0f;                  // of the lane's positions alone
  float value[kValueTiles][4] = {};  // of the weights' high terms [0, 1], low terms [2, 3]
};

// Turns the scores of a chunk that begins at `base` into weights, as fragments [steps of 16 positions]; the state's
// maximum, sum and values are brought to the new maximum. Every warp does this alike.
template <int kDim, bool kBf16>
__device__ __forceinline__ void Weights(const float* scores, int base, const Segment& s,
                                        State<Traits<kDim, kBf16>::kValueTiles>& state,
                                        uint32_t (&fragments)[Traits<kDim, kBf16>::kChunk / 16][4]) {
  using T = Traits<kDim, kBf16>;
  const int lane = static_cast<int>(LaneIndex()), column = lane % 4 * 2;
  float weight[T::kScoreTiles][2], top = -INFINITY;
#pragma unroll
  for (int i = 0; i < T::kScoreTiles; ++i) {
    FloatVector<2> sum{};
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
      const auto x = *reinterpret_cast<const FloatVector<2>*>(
          scores + (part * kTileHeads + lane / 4) * T::kScoreStride + i * 8 + column);
      sum.v[0] += x.v[0];
      sum.v[1] += x.v[1];
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int position = base + i * 8 + column + j;
      weight[i][j] = position < s.first || position > s.position ? -INFINITY : sum.v[j];
      top = fmaxf(top, weight[i][j]);
    }
  }
  top = fmaxf(top, WarpShuffleXor(top, 1));
  top = fmaxf(top, WarpShuffleXor(top, 2));
  top = fmaxf(top, state.max);
  const float decay = expf(state.max - top);  // 0 at first
  state.max = top;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < T::kScoreTiles; ++i) {
    weight[i][0] = expf(weight[i][0] - top);
    weight[i][1] = expf(weight[i][1] - top);
    sum += weight[i][0] + weight[i][1];
    const auto terms = SplitBf16Pair(weight[i][0], weight[i][1]);
    fragments[i / 2][i % 2 * 2] = terms.hi;
    fragments[i / 2][i % 2 * 2 + 1] = terms.lo;
  }
  state.sum = state.sum * decay + sum;
#pragma unroll
  for (auto& value : state.value) {
#pragma unroll
    for (float& x : value) x *= decay;
  }
}

template <int kDim, bool kBf16>
__device__ __forceinline__ void AddValues(const unsigned char* slot,
                                          const uint32_t (&weights)[Traits<kDim, kBf16>::kChunk / 16][4],
                                          State<Traits<kDim, kBf16>::kValueTiles>& state) {
  using T = Traits<kDim, kBf16>;
  const int column = static_cast<int>(WarpIndex()) * T::kValueTiles * 8;
  if (column >= kDim) return;
#pragma unroll
  for (int i = 0; i < T::kChunk / 16; ++i) {
#pragma unroll
    for (int j = 0; j < T::kValueTiles; j += 2) {
      ValueFragments<kDim, kBf16> v;
      v.Load(slot, i * 16, column + j * 8);
      Mma16816(state.value[j], weights[i], v.hi[0], v.hi[1]);
      Mma16816(state.value[j + 1], weights[i], v.hi[2], v.hi[3]);
      if constexpr (!kBf16) {
        Mma16816(state.value[j], weights[i], v.lo[0], v.lo[1]);
        Mma16816(state.value[j + 1], weights[i], v.lo[2], v.lo[3]);
      }
    }
  }
}

}  // namespace lapidary::gpu::decode
