#pragma once

#include "kernels/gpu/device/common.h"

// Blocks that run together and read each other's shared memory (LaunchShape::cluster > 1). From sm_90 on: launching a
// cluster on an older device throws kUnsupported. Shared variables of such a kernel are LAPIDARY_SHARED or
// DynamicShared, not plain __shared__.
namespace lapidary::gpu {

// This block's place among the cluster's.
__device__ __forceinline__ unsigned ClusterRank() {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::ClusterRank();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}

// All threads of all of the cluster's blocks; what they wrote before is visible after. A block must not end while
// others read its shared memory.
__device__ __forceinline__ void ClusterSync() {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::ClusterSync();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" : : : "memory");
#endif
}

// Where block `rank` has what lies at `shared` here.
template <typename T>
__device__ __forceinline__ T* ClusterShared(T* shared, unsigned rank) {
#if defined(LAPIDARY_GPU_EMULATION)
  return static_cast<T*>(emulation::ClusterShared(shared, rank));
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(shared), "r"(rank));
  return reinterpret_cast<T*>(address);
#else
  static_cast<void>(rank);
  return shared;
#endif
}

}  // namespace lapidary::gpu
