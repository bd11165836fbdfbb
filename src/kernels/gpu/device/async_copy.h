#pragma once

#include "kernels/gpu/device/common.h"

// Copies from global to shared memory that run beside the threads. Two kinds:
// - CpAsync16: each thread copies 16 bytes, in groups that it commits and waits for itself.
// - BulkCopy: one thread copies many bytes, and whoever waits at the Mbarrier sees them. From sm_90 on the copy engine
// does it;
//   before, the calling thread issues CpAsync16 for all of it.
//
// A ring of stages, each with a barrier `full` (1 arrival) and a barrier `empty` (an arrival of each consumer warp or
// thread):
//   producer, one thread:  MbarrierWait(empty, phase ^ 1); BulkCopy(...) once or more; MbarrierArriveExpectTx(full, all
//   bytes) consumers:             MbarrierWait(full, phase); read; WarpSync(); one lane: MbarrierArrive(empty)
// `phase` starts at 0 and flips each time around the ring. MbarrierWait(b, 1) on a fresh barrier returns at once.
// Copies come before their MbarrierArriveExpectTx: so the arrival can follow the copies where there is no copy engine.
namespace lapidary::gpu {

// In shared memory, 8-byte aligned.
struct Mbarrier {
  uint64_t state;
};

// By one thread, before others use it: then FenceBarrierInit() by the same thread and __syncthreads() by all.
__device__ __forceinline__ void MbarrierInit(Mbarrier* barrier, uint32_t arrivals) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::MbarrierInit(&barrier->state, arrivals);
#else
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(SharedAddress(barrier)), "r"(arrivals) : "memory");
#endif
}

// Makes initialized barriers visible to the copy engine.
__device__ __forceinline__ void FenceBarrierInit() {
#if !defined(LAPIDARY_GPU_EMULATION) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

// Orders this thread's plain accesses to shared memory before later bulk copies: needed when a bulk copy overwrites
// what threads *wrote* themselves. (A barrier is enough for what they read.)
__device__ __forceinline__ void FenceProxyAsync() {
#if !defined(LAPIDARY_GPU_EMULATION) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

__device__ __forceinline__ void MbarrierArrive(Mbarrier* barrier) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::MbarrierArrive(&barrier->state);
#else
  asm volatile("{\n .reg .b64 token;\n mbarrier.arrive.shared.b64 token, [%0];\n}"
               :
               : "r"(SharedAddress(barrier))
               : "memory");
#endif
}

// One arrival; the phase ends when all arrivals and the bytes of the bulk copies that this thread gave the barrier
// since its last call have come. `bytes`: their sum.
__device__ __forceinline__ void MbarrierArriveExpectTx(Mbarrier* barrier, uint32_t bytes) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::MbarrierArriveExpectTx(&barrier->state, bytes);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{\n .reg .b64 token;\n mbarrier.arrive.expect_tx.shared::cta.b64 token, [%0], %1;\n}"
               :
               : "r"(SharedAddress(barrier)), "r"(bytes)
               : "memory");
#else
  // Arrives when this thread's cp.async so far are done.
  static_cast<void>(bytes);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(SharedAddress(barrier)) : "memory");
#endif
}

// Whether the phase of that parity has ended; may wait a while for it.
__device__ __forceinline__ bool MbarrierTryWait(Mbarrier* barrier, uint32_t parity) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::MbarrierWait(&barrier->state, parity);
  return true;
#else
  uint32_t done;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(SharedAddress(barrier)), "r"(parity)
               : "memory");
#else
  asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(SharedAddress(barrier)), "r"(parity)
               : "memory");
#endif
  return done != 0;
#endif
}

__device__ __forceinline__ void MbarrierWait(Mbarrier* barrier, uint32_t parity) {
  while (!MbarrierTryWait(barrier, parity)) {
  }
}

// 16 bytes; both addresses multiples of 16.
__device__ __forceinline__ void CpAsync16(void* shared, const void* global) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::CpAsync16(shared, global, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(SharedAddress(shared)), "l"(__cvta_generic_to_global(global))
               : "memory");
#endif
}

// Zeros instead of the 16 bytes when not `valid`; `global` is not read then, but must be a pointer into global memory.
__device__ __forceinline__ void CpAsync16OrZero(void* shared, const void* global, bool valid) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::CpAsync16(shared, global, valid ? 16 : 0);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(SharedAddress(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
#endif
}

__device__ __forceinline__ void CpAsyncCommit() {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::CpAsyncCommit();
#else
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// Waits until at most kPending of this thread's latest groups are under way. Others see the bytes after a barrier.
template <int kPending>
__device__ __forceinline__ void CpAsyncWait() {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::CpAsyncWait(kPending);
#else
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

namespace internal {
#if !defined(LAPIDARY_GPU_EMULATION)
__device__ __forceinline__ void CpAsyncLoop(void* shared, const void* global, uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += 16) {
    CpAsync16(static_cast<char*>(shared) + at, static_cast<const char*>(global) + at);
  }
}
#endif
}  // namespace internal

// `bytes` bytes, a multiple of 16, as both addresses are.
__device__ __forceinline__ void BulkCopy(void* shared, const void* global, uint32_t bytes, Mbarrier* barrier) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::BulkCopy(shared, global, bytes, &barrier->state);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(SharedAddress(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes),
                 "r"(SharedAddress(barrier))
               : "memory");
#else
  static_cast<void>(barrier);
  internal::CpAsyncLoop(shared, global, bytes);
#endif
}

// BulkCopy for what is read once in the step, as weights: first to leave L2.
__device__ __forceinline__ void BulkCopyStreamed(void* shared, const void* global, uint32_t bytes, Mbarrier* barrier) {
#if defined(LAPIDARY_GPU_EMULATION)
  emulation::BulkCopy(shared, global, bytes, &barrier->state);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n .reg .b64 policy;\n createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
      "policy;\n}"
      :
      : "r"(SharedAddress(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
#else
  static_cast<void>(barrier);
  internal::CpAsyncLoop(shared, global, bytes);
#endif
}

}  // namespace lapidary::gpu
