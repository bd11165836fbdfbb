#pragma once

#include "kernels/gpu/device/common.h"

// bfloat16 as its bits. Pairs: two in a uint32, the first in the low half.
namespace lapidary::gpu {

__device__ __forceinline__ float Bf16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ __forceinline__ float LowBf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighBf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// To nearest, ties to even; a NaN becomes 0x7fff.
__device__ __forceinline__ uint16_t FloatToBf16(float value) {
#if defined(LAPIDARY_GPU_EMULATION)
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
#else
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#endif
}

__device__ __forceinline__ uint32_t PackBf16(float first, float second) {
#if defined(LAPIDARY_GPU_EMULATION)
  return FloatToBf16(first) | static_cast<uint32_t>(FloatToBf16(second)) << 16;
#else
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#endif
}

// Two values as sums of kTerms terms, each what the terms before it leave, rounded. Three hold all of a float's 24
// bits.
template <int kTerms>
__device__ __forceinline__ void SplitBf16Pair(float first, float second, uint32_t (&terms)[kTerms]) {
#pragma unroll
  for (int i = 0; i < kTerms; ++i) {
    terms[i] = PackBf16(first, second);
    first -= LowBf16(terms[i]);
    second -= HighBf16(terms[i]);
  }
}

}  // namespace lapidary::gpu
