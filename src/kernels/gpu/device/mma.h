#pragma once

#include "kernels/gpu/device/common.h"

// Tensor cores, warp-wide. With g = lane / 4 and t = lane % 4, a fragment's elements are (PTX ISA, mma.m16n8k16):
//   a [16, 16] row-major: a[0] (g, 2t..2t+1)  a[1] (g+8, 2t..)  a[2] (g, 2t+8..)  a[3] (g+8, 2t+8..)
//   b [16 (k), 8 (n)]:    b0 (k 2t..2t+1, n g)  b1 (k 2t+8.., n g): 8 rows of a weight [out, in] as they lie in memory
//   d [16, 8] row-major:  d[0], d[1] (g, 2t..2t+1)  d[2], d[3] (g+8, 2t..)
namespace lapidary::gpu {

// d += a b, bfloat16 in, float32 accumulation.
__device__ __forceinline__ void Mma16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::Mma16816(d, a, b0, b1);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Four 8x8 matrices of 16-bit elements from shared memory: lane 8 i + r passes the address of row r of matrix i (16
// bytes, aligned); r[i] receives elements (lane / 4, 2 (lane % 4)) and the next of matrix i.
__device__ __forceinline__ void LoadMatrixX4(uint32_t (&r)[4], const void* shared_row) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::LoadMatrix(r, 4, shared_row, /*transposed=*/false);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared_row))
               : "memory");
#endif
}

// Each matrix transposed: r[i] receives elements (2 (lane % 4), lane / 4) and (2 (lane % 4) + 1, lane / 4) of matrix i.
__device__ __forceinline__ void LoadMatrixX4Trans(uint32_t (&r)[4], const void* shared_row) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::LoadMatrix(r, 4, shared_row, /*transposed=*/true);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared_row))
               : "memory");
#endif
}

// Two matrices: the addresses of lanes 0..15 count.
__device__ __forceinline__ void LoadMatrixX2(uint32_t (&r)[2], const void* shared_row) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::LoadMatrix(r, 2, shared_row, /*transposed=*/false);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared_row))
               : "memory");
#endif
}

__device__ __forceinline__ void LoadMatrixX2Trans(uint32_t (&r)[2], const void* shared_row) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::LoadMatrix(r, 2, shared_row, /*transposed=*/true);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared_row))
               : "memory");
#endif
}

}  // namespace lapidary::gpu
