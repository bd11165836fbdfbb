// Included before any Highway header by every file that is compiled once per SIMD target.
#pragma once

// x86: SSE2 as the portable baseline, AVX2, AVX-512; the steps between them are not worth their compile time.
// Vectors of unknown size (SVE, RVV) cannot form the arrays of registers that the tiles are made of.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
