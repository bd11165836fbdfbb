#pragma once

#include "kernels/gpu/device/common.h"

// Cells: floats in global memory through which the blocks of one running grid hand values to each other. A cell is
// empty until it is published, once; whoever needs it reads it until it is not empty. So a value and the news of it
// travel together, and no order between different cells matters. Cells are emptied by another launch.
namespace lapidary::gpu {

// A NaN that no arithmetic gives.
inline constexpr uint32_t kEmptyCell = 0xffffffffu;

struct alignas(16) Cells4 {
  uint32_t v[4];

  __device__ __forceinline__ bool HasEmpty() const {
    return v[0] == kEmptyCell || v[1] == kEmptyCell || v[2] == kEmptyCell || v[3] == kEmptyCell;
  }
  __device__ __forceinline__ float4 Values() const {
    return make_float4(__uint_as_float(v[0]), __uint_as_float(v[1]), __uint_as_float(v[2]), __uint_as_float(v[3]));
  }
};

__device__ __forceinline__ uint32_t BitsToPublish(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits == kEmptyCell ? 0x7fffffffu : bits;
}

__device__ __forceinline__ void Publish(float* cell, float value) {
#if defined(LAPIDARY_GPU_EMULATION)
  *cell = __uint_as_float(BitsToPublish(value));
#else
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(cell)), "r"(BitsToPublish(value))
               : "memory");
#endif
}

// Four cells, 16-byte aligned.
__device__ __forceinline__ void Publish4(float* cells, const float4& value) {
#if defined(LAPIDARY_GPU_EMULATION)
  Publish(cells, value.x), Publish(cells + 1, value.y), Publish(cells + 2, value.z), Publish(cells + 3, value.w);
#else
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(cells)), "r"(BitsToPublish(value.x)), "r"(BitsToPublish(value.y)),
                 "r"(BitsToPublish(value.z)), "r"(BitsToPublish(value.w))
               : "memory");
#endif
}

__device__ __forceinline__ uint32_t LoadCell(const float* cell) {
#if defined(LAPIDARY_GPU_EMULATION)
  return __float_as_uint(*cell);
#else
  uint32_t bits;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(bits) : "l"(__cvta_generic_to_global(cell)) : "memory");
  return bits;
#endif
}

// Two cells, 8-byte aligned.
__device__ __forceinline__ uint2 LoadCells2(const float* cells) {
#if defined(LAPIDARY_GPU_EMULATION)
  return make_uint2(LoadCell(cells), LoadCell(cells + 1));
#else
  uint2 bits;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
               : "=r"(bits.x), "=r"(bits.y)
               : "l"(__cvta_generic_to_global(cells))
               : "memory");
  return bits;
#endif
}

// Four cells, 16-byte aligned.
__device__ __forceinline__ Cells4 LoadCells4(const float* cells) {
#if defined(LAPIDARY_GPU_EMULATION)
  return {{LoadCell(cells), LoadCell(cells + 1), LoadCell(cells + 2), LoadCell(cells + 3)}};
#else
  Cells4 bits;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.v[0]), "=r"(bits.v[1]), "=r"(bits.v[2]), "=r"(bits.v[3])
               : "l"(__cvta_generic_to_global(cells))
               : "memory");
  return bits;
#endif
}

// The time, the same on all multiprocessors.
__device__ __forceinline__ int64_t Nanoseconds() {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::Nanoseconds();
#else
  int64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time) : : "memory");
  return time;
#endif
}

// Lets others run while a thread waits for a cell; the processor's cycles, to bound the wait.
__device__ __forceinline__ int64_t SpinClock() {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::Spin();
#else
  return clock64();
#endif
}

// Bounds all waits of a thread: one that takes longer than kCycles notes where at *stuck, unless something stands
// there, and nobody waits any more. What is then computed is rubbish; the host finds the note.
struct Patience {
  static constexpr int64_t kCycles = int64_t{4} << 30;  // about two seconds

  uint32_t* stuck;
  uint32_t where = 0;  // not 0
  bool lost = false;

  // Begins a wait. Call Lasts() after each try that failed.
  struct Wait {
    Patience& patience;
    int64_t begin = SpinClock();
    uint32_t tries = 0;

    __device__ __forceinline__ bool Lasts() {
      if (patience.lost) return false;
      const int64_t now = SpinClock();
      if (++tries % 1024 == 0 || now - begin > kCycles) patience.Look(now - begin > kCycles);
      return !patience.lost;
    }
  };

  __device__ __forceinline__ Wait Begin() { return {*this}; }

  __device__ __forceinline__ void Look(bool too_long) {
    if (too_long) AtomicMax(stuck, where);
    lost = LoadCell(reinterpret_cast<const float*>(stuck)) != 0;
  }
};

// Waits for those of kCount groups of four cells that are wanted, at once; the others are 0.
template <int kCount>
__device__ __forceinline__ void AwaitCells4(const float* const (&cells)[kCount], const bool (&wanted)[kCount],
                                            Patience& patience, Cells4 (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = Cells4{};
    if (wanted[i]) values[i] = LoadCells4(cells[i]);
  }
  auto wait = patience.Begin();
#pragma unroll 1
  for (;;) {
    bool missing = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) missing |= values[i].HasEmpty();
    if (!missing || !wait.Lasts()) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (values[i].HasEmpty()) values[i] = LoadCells4(cells[i]);
    }
  }
}

}  // namespace lapidary::gpu
