#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/attention_prefill.h"

// Part of attention_prefill.cu: how its blocks are cut.
namespace lapidary::gpu::prefill {

inline constexpr int kPad = 8;  // values after each row in shared memory: ldmatrix then meets all banks

// A block holds kRows query vectors (row m is head m % group of the tile's token m / group) and kKeys keys and values.
// Its warps stand kWarpsM x kWarpsD: warp (m, d) computes the scores of rows [16 m, 16 m + 16) with the d-th part of
// the keys, and the d-th part of the values' dimensions of those rows' results.
template <int kDim_, int kWarpsM_, int kWarpsD_, int kKeys_, int kTerms_, bool kFloatCache_>
struct Tiling {
  static constexpr int kDim = kDim_, kWarpsM = kWarpsM_, kWarpsD = kWarpsD_, kKeys = kKeys_;
  static constexpr int kTerms = kTerms_, kKvTerms = kFloatCache_ ? kTerms_ : 1;
  static constexpr bool kFloatCache = kFloatCache_;
  static constexpr int kRows = 16 * kWarpsM, kThreads = kWarpSize * kWarpsM * kWarpsD;
  static constexpr int kStride = kDim + kPad;         // of q, k, v rows
  static constexpr int kWeightStride = kKeys + kPad;  // of softmax weights
  static constexpr int kWarpKeys = kKeys / kWarpsD, kScoreTiles = kWarpKeys / 8;
  static constexpr int kWarpDims = kDim / kWarpsD, kOutTiles = kWarpDims / 8;
  static constexpr int kChunks = kDim / 8;  // of 16 bytes a row
  static constexpr int kCopies = kKeys * kChunks / kThreads;
  // Values: q, k, v; where warps share rows also the weights that they exchange, and a float a row and warp.
  static constexpr int kQuery = kTerms * kRows * kStride, kKv = kKvTerms * kKeys * kStride;
  static constexpr int kWeights = kWarpsD > 1 ? kTerms* kRows* kWeightStride : 0;
  static constexpr size_t kSharedBytes =
      sizeof(uint16_t) * (kQuery + 2 * kKv + kWeights) + (kWarpsD > 1 ? sizeof(float) * kWarpsD * kRows : 0);
  static_assert(kCopies * kThreads == kKeys * kChunks && 64 % kKeys == 0);
};

// Calls f with the tiling for a shape as a type. `Large` wants the shared memory of sm_90 and later, `Small` 164 KiB.
template <typename Large, typename Small, typename F>
auto WithSize(bool is_small, const F& f) {
  return is_small ? f(Small{}) : f(Large{});
}

// One term: as many rows as fit, for speed.
template <bool kFloatCache, typename F>
auto WithOneTerm(int head_dim, bool is_small, const F& f) {
  if (head_dim <= 64) return f(Tiling<64, 4, 1, 64, 1, kFloatCache>{});
  if (head_dim <= 256) {
    return WithSize<Tiling<256, 8, 1, 64, 1, kFloatCache>, Tiling<256, 4, 1, 32, 1, kFloatCache>>(is_small, f);
  }
  return WithSize<Tiling<512, 4, 2, 64, 1, kFloatCache>, Tiling<512, 4, 2, 32, 1, kFloatCache>>(is_small, f);
}

template <typename F>
auto WithThreeTerms(int head_dim, bool is_small, const F& f) {
  if (head_dim <= 64) return f(Tiling<64, 4, 1, 64, 3, false>{});
  if (head_dim <= 256) return WithSize<Tiling<256, 4, 2, 64, 3, false>, Tiling<256, 4, 2, 32, 3, false>>(is_small, f);
  return WithSize<Tiling<512, 2, 4, 32, 3, false>, Tiling<512, 2, 2, 16, 3, false>>(is_small, f);
}

template <typename F>
auto WithThreeTermsOfAll(int head_dim, bool is_small, const F& f) {
  if (head_dim <= 64) return f(Tiling<64, 4, 1, 64, 3, true>{});
  if (head_dim <= 256) return WithSize<Tiling<256, 4, 2, 32, 3, true>, Tiling<256, 2, 2, 32, 3, true>>(is_small, f);
  return WithSize<Tiling<512, 2, 2, 16, 3, true>, Tiling<512, 1, 2, 16, 3, true>>(is_small, f);
}

template <typename F>
auto WithTiling(const PrefillShape& shape, bool is_small, const F& f) {
  if (shape.is_bf16_cache) {
    return shape.terms == 3 ? WithThreeTerms(shape.head_dim, is_small, f)
                            : WithOneTerm<false>(shape.head_dim, is_small, f);
  }
  return shape.terms == 3 ? WithThreeTermsOfAll(shape.head_dim, is_small, f)
                          : WithOneTerm<true>(shape.head_dim, is_small, f);
}

}  // namespace lapidary::gpu::prefill
