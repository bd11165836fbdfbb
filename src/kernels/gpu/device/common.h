#pragma once

#include <cstddef>
#include <cstdint>

// What every kernel may use besides the language: built-in names, shared memory, atomics, streaming loads. The headers
// of device/ have a CUDA form, and an emulated form (LAPIDARY_GPU_EMULATION) in which a block's threads are fibers on
// the host.
#if defined(LAPIDARY_GPU_EMULATION)
#include "kernels/gpu/emulation/device_language.h"  // IWYU pragma: export
#endif

// LAPIDARY_SHARED(name, type): a variable of the block, in shared memory, of undefined contents when the block starts:
//   LAPIDARY_SHARED(sums, float[8][32]);
// Preferred over plain __shared__: the emulation poisons it before each block, counts it, and finds writes beyond it.
#if defined(LAPIDARY_GPU_EMULATION)
#define LAPIDARY_SHARED(name, ...)                                                                          \
  static char name##_key;                                                                                   \
  ::lapidary::gpu::SharedType<__VA_ARGS__>& name = *static_cast<::lapidary::gpu::SharedType<__VA_ARGS__>*>( \
      ::lapidary::gpu::emulation::StaticShared(&name##_key, sizeof(::lapidary::gpu::SharedType<__VA_ARGS__>)))
#else
#define LAPIDARY_SHARED(name, ...) __shared__ __align__(16)::lapidary::gpu::SharedType<__VA_ARGS__> name
#endif

namespace lapidary::gpu {

namespace internal {
template <typename T>
struct Identity {
  using type = T;
};
}  // namespace internal
template <typename T>
using SharedType = typename internal::Identity<T>::type;

#if !defined(LAPIDARY_GPU_EMULATION)
extern __shared__ __align__(128) unsigned char lapidary_dynamic_shared[];

// An address of shared memory as PTX takes it.
__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
#endif

// LaunchShape::shared_bytes bytes of the block, aligned to 128.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
#if defined(LAPIDARY_GPU_EMULATION)
  return static_cast<T*>(emulation::DynamicShared());
#else
  return reinterpret_cast<T*>(lapidary_dynamic_shared);
#endif
}

// Registers of a thread from here on, for all threads of a group of four warps: some give up what others take. A
// multiple of 8, at most 256. Only sm_90a has it; elsewhere a thread keeps what it began with.
template <int kRegisters>
__device__ __forceinline__ void RaiseRegisters() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void LowerRegisters() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
#endif
}

// 16 bytes that no one writes during the kernel, read once: bypasses L1. The address is a multiple of 16.
__device__ __forceinline__ uint4 LoadGlobal16(const void* global) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::LoadGlobal16(global);
#else
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(global)));
  return value;
#endif
}

// Hides where the value comes from, so that what is made of it in a loop is made there, and not before and kept.
__device__ __forceinline__ void Opaque([[maybe_unused]] float& value) {
#if !defined(LAPIDARY_GPU_EMULATION)
  asm volatile("" : "+f"(value));
#endif
}

__device__ __forceinline__ void Opaque([[maybe_unused]] int& value) {
#if !defined(LAPIDARY_GPU_EMULATION)
  asm volatile("" : "+r"(value));
#endif
}

// Atomic on global or shared memory; return what was there before.
__device__ __forceinline__ uint32_t AtomicAdd(uint32_t* address, uint32_t value) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::FetchAdd(address, value);
#else
  return atomicAdd(address, value);
#endif
}
__device__ __forceinline__ int32_t AtomicAdd(int32_t* address, int32_t value) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::FetchAdd(address, value);
#else
  return atomicAdd(address, value);
#endif
}
__device__ __forceinline__ uint32_t AtomicMax(uint32_t* address, uint32_t value) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::FetchMax(address, value);
#else
  return atomicMax(address, value);
#endif
}
__device__ __forceinline__ uint64_t AtomicMax64(uint64_t* address, uint64_t value) {
#if defined(LAPIDARY_GPU_EMULATION)
  return emulation::FetchMax(address, value);
#else
  return atomicMax(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value));
#endif
}

// What this thread wrote before is seen by whoever sees what it writes after.
__device__ __forceinline__ void ThreadFence() {
#if !defined(LAPIDARY_GPU_EMULATION)
  __threadfence();
#endif
}

// Waits until `threads` threads of the block, a multiple of 32, have come to barrier `id`, 1..15. __syncthreads() is
// all of the block's.
__device__ __forceinline__ void NamedBarrier(int id, int threads) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::NamedBarrier(id, threads, /*wait=*/true);
#else
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
#endif
}
// Counts as having come, without waiting.
__device__ __forceinline__ void NamedBarrierArrive(int id, int threads) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::NamedBarrier(id, threads, /*wait=*/false);
#else
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
#endif
}

}  // namespace lapidary::gpu
