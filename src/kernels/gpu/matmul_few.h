#pragma once

#include <cstdint>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// Rows of a step that the few-row products take. Activations of such steps lie in buffers [kFewRows, width].
inline constexpr int kFewRows = 8;

// Products of few rows with bfloat16 matrices, y = x W^T: every weight is read once, through a ring in shared memory
// that fills before the kernel's input is ready. An activation counts as three bfloat16 terms, which hold all of its
// 24 bits; sums are float32 in a fixed order. A row's result does not depend on the other rows or their number.

// One row's best output seen by one CTA.
struct BestLogit {
  float value;
  int32_t id;  // -1: none (all NaN)
};

struct FewMatrix {
  const uint16_t* data = nullptr;  // [rows, k] bfloat16, 16-byte aligned
  int32_t rows = 0;
};

struct MatmulFewArgs {
  int32_t rows = 1;  // of this step, in [1, kFewRows]
  FewMatrix w;
  int32_t k = 0;  // a multiple of 8

  const float* x = nullptr;  // [kFewRows, k]
  float* y = nullptr;        // [kFewRows, n]
  // MultiplyFewHead
  float softcap = 0.0f;       // 0: none
  BestLogit* best = nullptr;  // [CTAs, kFewRows]
};

// CTAs of every product: one for each multiprocessor.
int MatmulFewCtas();

// ids[r] = the best id of row r over all CTAs' (ties: the lowest), -1 when all its logits are NaN.
void BestOfCtas(gpuStream stream, int rows, const BestLogit* best, int32_t* ids);

// Both read w.rows * k * 2 bytes once, and their input from every CTA. `what` names the launch in errors. They start as
// dependent launches: everything they read besides weights may be written by the launch before.

// y = x W^T.
void MultiplyFew(const char* what, gpuStream stream, const MatmulFewArgs& args);
// The same, soft-capped, and the best id of each row that each CTA sees.
void MultiplyFewHead(const char* what, gpuStream stream, const MatmulFewArgs& args);

}  // namespace lapidary::gpu
