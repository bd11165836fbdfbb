#pragma once

#include <array>
#include <cstdint>

#include "backends/gpu/placed_weights.h"
#include "backends/gpu/scratch.h"
#include "backends/gpu/step_input.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/matmul.h"
#include "kernels/gpu/matmul_few.h"

namespace lapidary::gpu {

// How activations enter the products of many rows: as three bfloat16 terms, which hold all 24 bits of a float32, or
// rounded to bfloat16, which is a third of the work.
enum class ActivationTerms : uint8_t { kThree, kOne };

// The matrix products of a step, for any number of rows: few rows stream the weights past them, more rows go through
// tensor cores. Every product has the same input buffer: whatever makes the input writes to Input() first.
class Products {
 public:
  explicit Products(ActivationTerms terms);

  // For what follows, until the next call: products have `rows` rows, and buffers are made for `room` rows at least.
  void SetRows(int64_t rows, int64_t room);

  // Where the next product's input [rows, width] goes, in the form that the product takes.
  RowOutput Input(int64_t width);
  // y = input w^T; the result lies in `y` until it is used again. `what` names the product in errors.
  RowInput Multiply(const char* what, const DeviceMatrix& w, Scratch<float>& y, gpuStream stream);
  // y = soft-capped input w^T for at most kFewRows rows, and the best id of each row.
  void MultiplyHead(const DeviceMatrix& w, float softcap, float* y, int32_t* best, gpuStream stream);

  // `n` in device memory, for kernels that read the number of rows there.
  static constexpr int kMostCount = StepInput::kPieceRows;
  const int32_t* Count(int64_t n) const { return counts_.data() + n; }

  bool is_few() const { return rows_ <= kFewRows; }
  double flops() const { return flops_; }
  void ClearFlops() { flops_ = 0; }

 private:
  MatmulFewArgs FewArgs(const DeviceMatrix& w, float* y) const;

  int64_t terms_;
  int64_t rows_ = 0, room_ = 0;
  Scratch<float> values_;        // [kFewRows, width]
  Scratch<uint16_t> split_;      // [terms, rows, width]
  Scratch<int32_t> counts_;      // 0 .. kMostCount
  Scratch<BestLogit> cta_best_;  // [CTAs, kFewRows]
  Scratch<std::byte> workspace_;
  ManyRowsMatmul many_;
  double flops_ = 0;
};

}  // namespace lapidary::gpu
