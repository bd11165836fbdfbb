#pragma once

#include "kernels/gpu/device/common.h"

// Collectives of a warp: all of its 32 threads take part, and come to the same one.
namespace lapidary::gpu {

#if !defined(LAPIDARY_GPU_EMULATION)
constexpr unsigned kWholeWarp = 0xffffffffu;
#endif

__device__ __forceinline__ unsigned LaneIndex() { return threadIdx.x % 32; }
__device__ __forceinline__ unsigned WarpIndex() { return threadIdx.x / 32; }

// Also orders the warp's accesses to memory.
__device__ __forceinline__ void WarpSync() {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::WarpSync();
#else
  __syncwarp();
#endif
}

// T: 4 or 8 bytes, arithmetic.
template <typename T>
__device__ __forceinline__ T WarpShuffle(T value, int lane) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::Shuffle("WarpShuffle", value, lane);
#else
  return __shfl_sync(kWholeWarp, value, lane);
#endif
}

template <typename T>
__device__ __forceinline__ T WarpShuffleXor(T value, int mask) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::Shuffle("WarpShuffleXor", value, static_cast<int>(LaneIndex()) ^ mask);
#else
  return __shfl_xor_sync(kWholeWarp, value, mask);
#endif
}

// The value of lane + delta; the own value where there is no such lane.
template <typename T>
__device__ __forceinline__ T WarpShuffleDown(T value, int delta) {
#if defined(LAPIDARY_GPU_EMULATION)
  const int lane = static_cast<int>(LaneIndex());
  return emulation::Shuffle("WarpShuffleDown", value, lane + delta < 32 ? lane + delta : lane);
#else
  return __shfl_down_sync(kWholeWarp, value, delta);
#endif
}

// The value of lane - delta; the own value where there is no such lane.
template <typename T>
__device__ __forceinline__ T WarpShuffleUp(T value, int delta) {
#if defined(LAPIDARY_GPU_EMULATION)
  const int lane = static_cast<int>(LaneIndex());
  return emulation::Shuffle("WarpShuffleUp", value, lane >= delta ? lane - delta : lane);
#else
  return __shfl_up_sync(kWholeWarp, value, delta);
#endif
}

// Bit i: the predicate of lane i.
__device__ __forceinline__ uint32_t Ballot(bool predicate) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::Ballot(predicate);
#else
  return __ballot_sync(kWholeWarp, predicate);
#endif
}
__device__ __forceinline__ int CountBits(uint32_t bits) {
#if defined(LAPIDARY_GPU_EMULATION)
  return __builtin_popcount(bits);
#else
  return __popc(bits);
#endif
}
__device__ __forceinline__ bool WarpAny(bool predicate) { return Ballot(predicate) != 0; }
__device__ __forceinline__ bool WarpAll(bool predicate) { return Ballot(predicate) == 0xffffffffu; }

// The sum over the lanes in every lane, as a tree of WarpShuffleXor over 16, 8, 4, 2, 1: the same bits in every lane
// and run.
template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::Reduce("WarpSum", value, [](T a, T b) { return a + b; });
#else
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(kWholeWarp, value, mask);
  return value;
#endif
}

template <typename T>
__device__ __forceinline__ T WarpMax(T value) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::Reduce("WarpMax", value, [](T a, T b) { return a > b ? a : b; });
#else
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const T other = __shfl_xor_sync(kWholeWarp, value, mask);
    value = value > other ? value : other;
  }
  return value;
#endif
}

}  // namespace lapidary::gpu
