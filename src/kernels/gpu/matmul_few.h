#pragma once

#include <cstdint>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// Rows of a step that the few-row products take. Activations of such steps lie in buffers [kFewRows, width].
inline constexpr int kFewRows = 8;

// Products of few rows with bfloat16 matrices, y = x W^T: every weight is read once, through a ring in shared memory
// that fills before the kernel's input is ready. An activation counts as two bfloat16 terms (hi + lo, 16 bits of
// mantissa); sums are float32 in a fixed order. A row's result does not depend on the other rows or their number.

// What becomes of the input rows on their way into the product.
enum class FewInput : uint8_t {
  kRows,      // x as it is
  kPerLayer,  // gelu_tanh(x) * per_layer
  kResidual,  // x is a branch that joins the residual stream, which is then normed
};

enum class FewOutput : uint8_t {
  kStore,  // y
  kGated,  // gelu_tanh(gate) * up; matrices[0] is the gate, matrices[1] up, of the same height
  kHead,   // y soft-capped, and the best id of each row
};

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
  const int32_t* rows = nullptr;  // in device memory: rows of this step, in [1, kFewRows]
  FewMatrix matrices[3];          // their outputs stand side by side
  int32_t k = 0;                  // a multiple of 8
  int32_t k_splits = 1;  // > 1 (kStore only): y [k_splits, kFewRows, n] are partial sums for the reader to add in order

  const float* x = nullptr;  // [x_parts, kFewRows, k], added in order
  int32_t x_parts = 1;
  // kPerLayer
  const float* per_layer = nullptr;  // [kFewRows, per_layer_stride]: k values a row
  int64_t per_layer_stride = 0;
  // kResidual: h = (hidden + norm(x) * post_norm) * scale is written to hidden_out, and norm(h) * pre_norm is the
  // input.
  const float* hidden = nullptr;     // [kFewRows, k]
  float* hidden_out = nullptr;       // [kFewRows, k], another buffer
  const float* post_norm = nullptr;  // [k]; nullptr: there is no branch, h = hidden
  const float* pre_norm = nullptr;   // [k]; nullptr: the input is h itself
  float scale = 1.0f;
  float eps = 0.0f;
  int32_t* bad_place = nullptr;  // set to `place` when h is not finite and nothing was before
  int32_t place = 0;             // not 0

  float* y = nullptr;  // [k_splits, kFewRows, n]; kGated: [kFewRows, matrices[0].rows]
  // kHead
  float softcap = 0.0f;       // 0: none
  BestLogit* best = nullptr;  // [CTAs, kFewRows]
};

// CTAs that LaunchMatmulFew starts: one for each multiprocessor.
int MatmulFewCtas();

// How often to cut k (kStore), so that a CTA holds its part of the input in registers: ceil(k / 1536).
int MatmulFewSplits(int64_t k);

// ids[r] = the best id of row r over all CTAs' (ties: the lowest), -1 when all its logits are NaN.
void BestOfCtas(gpuStream stream, const int32_t* rows, const BestLogit* best, int32_t* ids);

// Reads (sum of matrices' rows) * k * 2 bytes once, and x from every CTA. `what` names the launch in errors. Starts as
// a dependent launch: everything it reads besides weights and norms may be written by the launch before it.
void LaunchMatmulFew(const char* what, gpuStream stream, FewInput input, FewOutput output, const MatmulFewArgs& args);

}  // namespace lapidary::gpu
