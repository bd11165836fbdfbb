#pragma once

#include <cmath>

#include "kernels/gpu/attention_decode_segments.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/mma.h"

// Parts of attention_decode.cu: the products and the softmax of a chunk.
namespace lapidary::gpu::decode {

// What the warp needs of its query head, loaded all at once.
template <int kDim>
struct RawQuery {
  using Vector = HeadVector<kDim>;
  Vector x{};
  typename Vector::Rotation rotation;

  __device__ __forceinline__ void Load(const KernelArgs& args, const Segment& s) {
    const int group = args.heads / args.kv_heads, head = s.head_tile * kTileHeads + static_cast<int>(WarpIndex());
    rotation.Load(args.a.rope, s.row);
    if (head < group) x.Load(args.a.q, s.row, (s.kv_head * group + head) * kDim);
  }
};

// Stores kWide values as terms, the same term of all of them side by side.
template <int kDim, int kWide>
__device__ __forceinline__ void StoreQuery(const FloatVector<kWide>& x, uint16_t* to) {
  constexpr int kTermStride = kTileHeads * Traits<kDim, true>::kQueryStride;
  if constexpr (kWide == 1) {
    uint32_t terms[kTerms];
    SplitBf16Pair(x.v[0], 0.0f, terms);
#pragma unroll
    for (int i = 0; i < kTerms; ++i) to[i * kTermStride] = static_cast<uint16_t>(terms[i] & 0xffffu);
  } else {
    struct alignas(2 * kWide) Pairs {
      uint32_t v[kWide / 2];
    } pairs[kTerms];
#pragma unroll
    for (int j = 0; j < kWide / 2; ++j) {
      uint32_t terms[kTerms];
      SplitBf16Pair(x.v[2 * j], x.v[2 * j + 1], terms);
#pragma unroll
      for (int i = 0; i < kTerms; ++i) pairs[i].v[j] = terms[i];
    }
#pragma unroll
    for (int i = 0; i < kTerms; ++i) *reinterpret_cast<Pairs*>(to + i * kTermStride) = pairs[i];
  }
}

// The query heads of the segment's tile, normed and rotated, as terms; missing heads are zero. One warp for each head.
template <int kDim>
__device__ __forceinline__ void PrepareQuery(RawQuery<kDim>& raw, const HeadVector<kDim>& weight, float eps,
                                             uint16_t* query) {
  using Vector = HeadVector<kDim>;
  raw.x.Norm(eps);
  raw.x.Multiply(weight);
  raw.x.Rotate(raw.rotation);
  uint16_t* to = query + WarpIndex() * Traits<kDim, true>::kQueryStride;
#pragma unroll
  for (int i = 0; i < Vector::kLoads; ++i) {
    const int at = Vector::Index(i);
    if (at >= Vector::kHalf) continue;
    StoreQuery<kDim>(raw.x.low[i], to + at);
    StoreQuery<kDim>(raw.x.high[i], to + at + Vector::kHalf);
  }
}

// The warp's part of the columns of the query, by steps of 16 columns: fragments of the first two terms. Those of the
// third are loaded when they are needed, as registers are scarce.
template <int kDim, bool kBf16>
struct QueryPart {
  using T = Traits<kDim, kBf16>;
  uint32_t first[T::kPartSteps][4];
  const uint16_t* third;  // this lane's row

  __device__ __forceinline__ void Load(const uint16_t* query) {
    const int lane = static_cast<int>(LaneIndex());
    const int begin = static_cast<int>(WarpIndex()) / T::kScoreTiles % T::kParts * T::kPartSteps * 16;
#pragma unroll
    for (int i = 0; i < T::kPartSteps; ++i) {
      LoadMatrixX4(first[i], query + lane % 16 * T::kQueryStride + begin + i * 16 + lane / 16 * 8);
    }
    third = query + (2 * kTileHeads + lane % 8) * T::kQueryStride + begin + lane / 8 * 8;
  }
};

// The keys (k 2t.., n g) and (k 2t+8.., n g) of two steps of 16 columns, n one of 8 positions: terms [term][fragment].
template <int kDim, bool kBf16>
struct KeyFragments;

template <int kDim>
struct KeyFragments<kDim, true> {
  uint32_t terms[1][4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    const int lane = static_cast<int>(LaneIndex());
    LoadMatrixX4(terms[0], slot + (position + lane % 8) * Traits<kDim, true>::kRowBytes + (column + lane / 8 * 8) * 2);
  }
};

template <int kDim>
struct KeyFragments<kDim, false> {
  uint32_t terms[kTerms][4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    const int lane = static_cast<int>(LaneIndex());
    const auto* row = reinterpret_cast<const float*>(slot + (position + lane / 4) * Traits<kDim, false>::kRowBytes) +
                      column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto pair = *reinterpret_cast<const FloatVector<2>*>(row + i * 8);
      uint32_t split[kTerms];
      SplitBf16Pair(pair.v[0], pair.v[1], split);
#pragma unroll
      for (int term = 0; term < kTerms; ++term) terms[term][i] = split[term];
    }
  }
};

// scores [kParts, kTileHeads, kScoreStride] of one chunk of keys, apart for each part of the columns. Of the products
// of terms those down to 2^-16 count (three of them with exact keys, six otherwise, and what the fragments add).
template <int kDim, bool kBf16>
__device__ __forceinline__ void Scores(const unsigned char* slot, const QueryPart<kDim, kBf16>& query, float* scores) {
  using T = Traits<kDim, kBf16>;
  const int lane = static_cast<int>(LaneIndex()), tile = static_cast<int>(WarpIndex()) % T::kScoreTiles;
  const int part = static_cast<int>(WarpIndex()) / T::kScoreTiles;
  if (part >= T::kParts) return;
  // Of even and odd steps: rows of first and of second terms; and what belongs to lesser terms.
  float sums[2][4] = {}, rest[2][4] = {};
#pragma unroll
  for (int i = 0; i < T::kPartSteps; i += 2) {
    KeyFragments<kDim, kBf16> k;
    k.Load(slot, tile * 8, (part * T::kPartSteps + i) * 16);
    uint32_t lo[4];  // of both steps
    LoadMatrixX4(lo, query.third + i * 16);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const uint32_t third[4] = {lo[2 * odd], 0, lo[2 * odd + 1], 0};
      Mma16816(sums[odd], query.first[i + odd], k.terms[0][2 * odd], k.terms[0][2 * odd + 1]);
      Mma16816(rest[odd], third, k.terms[0][2 * odd], k.terms[0][2 * odd + 1]);
      if constexpr (!kBf16) {
        Mma16816(rest[odd], query.first[i + odd], k.terms[1][2 * odd], k.terms[1][2 * odd + 1]);
        Mma16816(rest[odd], query.first[i + odd], k.terms[2][2 * odd], k.terms[2][2 * odd + 1]);
      }
    }
  }
  FloatVector<2> score;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float lesser =
        (sums[0][2 + j] + sums[1][2 + j]) + ((rest[0][j] + rest[1][j]) + (rest[0][2 + j] + rest[1][2 + j]));
    score.v[j] = (sums[0][j] + sums[1][j]) + lesser;
  }
  *reinterpret_cast<FloatVector<2>*>(scores + (part * kTileHeads + lane / 4) * T::kScoreStride + tile * 8 +
                                     lane % 4 * 2) = score;
}

// Values (k 2t.., n g), (k 2t+8.., n g) of 16 positions k and two tiles of 8 columns n: terms [term][fragment].
template <int kDim, bool kBf16>
struct ValueFragments;

template <int kDim>
struct ValueFragments<kDim, true> {
  uint32_t terms[1][4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    const int lane = static_cast<int>(LaneIndex());
    LoadMatrixX4Trans(terms[0],
                      slot + (position + lane % 16) * Traits<kDim, true>::kRowBytes + (column + lane / 16 * 8) * 2);
  }
};

template <int kDim>
struct ValueFragments<kDim, false> {
  uint32_t terms[kTerms][4];
  __device__ __forceinline__ void Load(const unsigned char* slot, int position, int column) {
    constexpr int kRowFloats = Traits<kDim, false>::kRowBytes / 4;
    const int lane = static_cast<int>(LaneIndex());
    const auto* at = reinterpret_cast<const float*>(slot) + (position + lane % 4 * 2) * kRowFloats + column + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = at + i % 2 * 8 * kRowFloats + i / 2 * 8;
      uint32_t split[kTerms];
      SplitBf16Pair(pair[0], pair[kRowFloats], split);
#pragma unroll
      for (int term = 0; term < kTerms; ++term) terms[term][i] = split[term];
    }
  }
};

// The softmax so far in a warp: of head lane / 4, with the warp's columns of the values.
template <int kValueTiles>
struct State {
  float max = -INFINITY;
  float sum = 0.0f;                  // of the lane's positions alone
  float value[kValueTiles][4] = {};  // of the weights' first terms [0, 1], of the others [2, 3]
};

// The weights of 16 positions: fragments of the first two terms, and the third of both tiles of 8 positions.
struct WeightFragments {
  uint32_t first[4], third[2];
};

// Turns the scores of a chunk that begins at `base` into weights, as fragments [steps of 16 positions]; the state's
// maximum, sum and values are brought to the new maximum. Every warp does this alike.
template <int kDim, bool kBf16>
__device__ __forceinline__ void Weights(const float* scores, int base, const Segment& s,
                                        State<Traits<kDim, kBf16>::kValueTiles>& state,
                                        WeightFragments (&fragments)[Traits<kDim, kBf16>::kSteps]) {
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
    uint32_t terms[kTerms];
    SplitBf16Pair(weight[i][0], weight[i][1], terms);
    fragments[i / 2].first[i % 2 * 2] = terms[0];
    fragments[i / 2].first[i % 2 * 2 + 1] = terms[1];
    fragments[i / 2].third[i % 2] = terms[2];
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
                                          const WeightFragments (&weights)[Traits<kDim, kBf16>::kSteps],
                                          State<Traits<kDim, kBf16>::kValueTiles>& state) {
  using T = Traits<kDim, kBf16>;
  const int column = static_cast<int>(WarpIndex()) * T::kValueTiles * 8;
  if (column >= kDim) return;
#pragma unroll
  for (int i = 0; i < T::kSteps; ++i) {
    const uint32_t third[4] = {0, weights[i].third[0], 0, weights[i].third[1]};
#pragma unroll
    for (int j = 0; j < T::kValueTiles; j += 2) {
      ValueFragments<kDim, kBf16> v;
      v.Load(slot, i * 16, column + j * 8);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&sum)[4] = state.value[j + half];
        Mma16816(sum, weights[i].first, v.terms[0][2 * half], v.terms[0][2 * half + 1]);
        Mma16816(sum, third, v.terms[0][2 * half], v.terms[0][2 * half + 1]);
        if constexpr (!kBf16) {
          Mma16816(sum, weights[i].first, v.terms[1][2 * half], v.terms[1][2 * half + 1]);
          Mma16816(sum, weights[i].first, v.terms[2][2 * half], v.terms[2][2 * half + 1]);
        }
      }
    }
  }
}

}  // namespace lapidary::gpu::decode
