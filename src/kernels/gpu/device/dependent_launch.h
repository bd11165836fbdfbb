#pragma once

#include "kernels/gpu/device/common.h"

// A kernel launched with LaunchShape::dependent may start while the stream's previous kernel still runs. It must call
// WaitForEarlierKernels() before it touches anything that earlier kernels write or read; only weights may be read
// sooner. Every such kernel calls it, needed or not: later kernels rely on it having waited for all before. Before
// sm_90 both do nothing, and kernels start one after the other.
namespace lapidary::gpu {

// The stream's next kernel may start when all blocks have called this or ended.
__device__ __forceinline__ void DependentsMayStart() {
#if !defined(LAPIDARY_GPU_EMULATION) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

// Returns when all earlier kernels have ended and what they wrote is visible.
__device__ __forceinline__ void WaitForEarlierKernels() {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::WaitForEarlierKernels();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

}  // namespace lapidary::gpu
