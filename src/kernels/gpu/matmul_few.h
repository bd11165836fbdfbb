#pragma once

#include <cstdint>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// Rows of a step that the few-row products take. Activations of such steps lie in buffers [kFewRows, width].
inline constexpr int kFewRows = 8;
// The widest residual stream that JoinAndMultiplyFew takes.
inline constexpr int kFewResidualWidth = 1536;

// Products of few rows with bfloat16 matrices, y = x W^T: every weight is read once, through a ring in shared memory
// that fills before the kernel's input is ready. An activation counts as three bfloat16 terms, which hold all of its
// 24 bits; sums are float32 in a fixed order. A row's result does not depend on the other rows or their number.

enum class FewOutput : uint8_t {
  kStore,  // y
  kGated,  // gelu_tanh(gate) * up; the upper half of the matrix is the gate, the lower half up
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
  int32_t rows = 1;  // of this step, in [1, kFewRows]
  FewMatrix w;
  int32_t k = 0;         // a multiple of 8
  int32_t k_splits = 1;  // > 1 (kStore only): y [k_splits, kFewRows, n] are partial sums for the reader to add in order

  const float* x = nullptr;  // [x_parts, kFewRows, k], added in order
  int32_t x_parts = 1;
  // MultiplyFewPerLayer
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

  float* y = nullptr;  // [k_splits, kFewRows, n]; kGated: [kFewRows, w.rows / 2]
  // kHead
  float softcap = 0.0f;       // 0: none
  BestLogit* best = nullptr;  // [CTAs, kFewRows]
};

// CTAs of every product: one for each multiprocessor.
int MatmulFewCtas();

// How often to cut k (kStore), so that a CTA holds its part of the input in registers: ceil(k / 1536).
int MatmulFewSplits(int64_t k);

// ids[r] = the best id of row r over all CTAs' (ties: the lowest), -1 when all its logits are NaN.
void BestOfCtas(gpuStream stream, int rows, const BestLogit* best, int32_t* ids);

// All of these read w.rows * k * 2 bytes once, and their input from every CTA. `what` names the
// launch in errors. They start as dependent launches: everything they read besides weights and norms may be written by
// the launch before.

// y = x W^T.
void MultiplyFew(const char* what, gpuStream stream, const MatmulFewArgs& args);
// As FewOutput::kHead.
void MultiplyFewHead(const char* what, gpuStream stream, const MatmulFewArgs& args);
// y = (gelu_tanh(x) * per_layer) W^T.
void MultiplyFewPerLayer(const char* what, gpuStream stream, const MatmulFewArgs& args);
// x is a branch that joins the residual stream: h = (hidden + norm(x) * post_norm) * scale is written to hidden_out,
// and norm(h) * pre_norm is the product's input. k is at most kFewResidualWidth (Error kInvalidArgument), k_splits 1.
void JoinAndMultiplyFew(const char* what, gpuStream stream, FewOutput output, const MatmulFewArgs& args);

}  // namespace lapidary::gpu
