#pragma once

#include <cstdint>

#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/runtime.h"

// Products of some ten to some hundred rows, bound by reading the weights once: y = x W^T on tensor cores, with x and W
// bfloat16 and sums in float32. Weights pass through a ring in shared memory, from before the kernel's predecessors
// have ended; where there are few outputs, the sums are split and left in parts.
namespace lapidary::gpu {

// All pointers are device memory, aligned to 16 bytes.
struct MatmulBatchArgs {
  int32_t rows = 0;             // of x and y
  int32_t terms = 1;            // bf16 terms of x: 1 or 3
  const uint16_t* x = nullptr;  // [terms, rows, cols]
  const uint16_t* w = nullptr;  // [outputs, cols]
  int32_t outputs = 0;          // a multiple of 8; of 16 where it is gated
  int32_t cols = 0;             // a multiple of 8
};

// How many parts the sums of a product are best left in.
int MatmulBatchSplits(int32_t outputs, int32_t cols, int multiprocessors);

// y [splits, rows, outputs]: the parts add up to the product. With softcap > 0, where splits must be 1: softcap *
// tanh(product / softcap). Reads 2 * cols * outputs bytes of weights once for every 128 rows, or 64 of three
// terms.
void MatmulBatch(const char* what, gpuStream stream, const MatmulBatchArgs& args, int splits, float softcap, float* y);

// out [rows, outputs / 2] = gelu_tanh(product with the first half of w) * product with the second half; only bf16 terms
// of out are written.
void MatmulBatchGated(const char* what, gpuStream stream, const MatmulBatchArgs& args, const RowOutput& out);

}  // namespace lapidary::gpu
