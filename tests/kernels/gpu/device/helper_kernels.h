#pragma once

#include <cstdint>

#include "kernels/gpu/runtime.h"

// Kernels that only tests run: each shows some of device/'s helpers. Pointers are to device memory.
namespace lapidary::gpu::testing {

struct WarpResults {
  float shuffle;       // from lane (5 lane + 1) % 32
  float shuffle_xor;   // 3
  float shuffle_down;  // 7
  float shuffle_up;    // 7
  float sum, max;
  uint64_t wide;  // thread << 40, from lane ^ 1
  uint32_t ballot;
  uint32_t any, all;  // any: of the second warp's lane 31
};
void RunWarp(gpuStream stream, const float* values, WarpResults* out, unsigned threads);

// out [blocks, threads]: the block's sum in every element.
void RunBlockSum(gpuStream stream, const float* values, float* out, unsigned blocks, unsigned threads);

struct Bf16Results {
  uint16_t rounded;
  // Pairs with the next value, cyclic.
  uint32_t packed, terms[3];
  float low_values[3], high_values[3];  // of the terms
};
void RunBf16(gpuStream stream, const float* values, Bf16Results* out, int count);

// out [16, 8] += a [16, 16] * b [8, 16]^T, bfloat16; `transposed`: b is loaded through the transposing form.
void RunMma(gpuStream stream, const uint16_t* a, const uint16_t* b, float* out, bool transposed);
// rows [32, 8]; out [32 (lane), 4].
void RunLoadMatrix(gpuStream stream, const uint16_t* rows, uint32_t* out, bool transposed);

// out = words + 1, words [tiles, 256].
void RunRing(gpuStream stream, const uint32_t* words, uint32_t* out, int tiles);
// values, out [tiles, 64] of 16 bytes: out[t][i] = values[t][(i + 1) % 64], zero from element `valid` on.
void RunCpAsync(gpuStream stream, const void* values, void* out, int tiles, int valid);
// values [64]; out [64]: their sum.
void RunNamedBarrier(gpuStream stream, const float* values, float* out);
// 64 threads a block. counters [4]: += 1 a thread; += -2 a thread; += 1 a block; what the last block found in the
// first.
void RunAtomics(gpuStream stream, uint32_t* counters, uint64_t* largest, unsigned blocks);
// values, out [32, 4] uint32: each four reversed.
void RunLoad(gpuStream stream, const void* values, void* out);
// out = x + y; launched as dependent.
void RunAdd(gpuStream stream, const float* x, float y, float* out, int count);
// out [clusters * 4, 32]: what the next block of the cluster had: 100 * block + thread.
void RunCluster(gpuStream stream, uint32_t* out, unsigned clusters);
// Three rounds in which `blocks` blocks hand each other 64 values each, through cells [3, blocks, 64]; out [3, blocks,
// 64]: for each block and thread the sum over the blocks. Without publish_all block 0 publishes nothing in the last
// one.
void RunExchange(gpuStream stream, float* cells, float* out, uint32_t* stuck, int blocks, bool publish_all);

}  // namespace lapidary::gpu::testing
