#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>

#include "backends/gpu/placed_weights.h"
#include "backends/gpu/scratch.h"
#include "backends/gpu/step_input.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/matmul.h"
#include "kernels/gpu/matmul_batch.h"
#include "kernels/gpu/matmul_few.h"

namespace lapidary::gpu {

// How activations enter the products of many rows: as three bfloat16 terms, which hold all 24 bits of a float32, or
// rounded to bfloat16, which is a third of the work.
enum class ActivationTerms : uint8_t { kThree, kOne };

// The matrix products of a step, for any number of rows: few rows stream the weights past them, more rows go through
// tensor cores. Every product has the same input buffer: whatever makes the input writes to Input() first.
class Products {
 public:
  // With `measures_batch`, the first product of each size is timed by both kernels for many rows, ours and the
  // library's, and the faster one is remembered; in a capture each size must be known. Else the library's is taken.
  Products(ActivationTerms terms, int multiprocessors, bool measures_batch);

  // For what follows, until the next call: products have `rows` rows, and buffers are made for `room` rows at least.
  void SetRows(int64_t rows, int64_t room);

  // Where the next product's input [rows, width] goes, in the form that the product takes.
  RowOutput Input(int64_t width);
  // y = input w^T; the result lies in `y` until it is used again. `what` names the product in errors.
  RowInput Multiply(const char* what, const DeviceMatrix& w, Scratch<float>& y, gpuStream stream);
  // The next product's input: gelu_tanh(input w1^T) * input w2^T, w1 and w2 the halves of w. `y` is scratch.
  void MultiplyGated(const char* what, const DeviceMatrix& w, RowCount rows, Scratch<float>& y, gpuStream stream);
  // y [rows, w.rows] = soft-capped input w^T, for more than kFewRows rows.
  void MultiplyLogits(const DeviceMatrix& w, float softcap, RowCount rows, Scratch<float>& y, gpuStream stream);
  // The same for at most kFewRows rows, and the best id of each row.
  void MultiplyHead(const DeviceMatrix& w, float softcap, Scratch<float>& y, int32_t* best, gpuStream stream);

  // `n` in device memory, for kernels that read the number of rows there.
  static constexpr int kMostCount = StepInput::kPieceRows;
  const int32_t* Count(int64_t n) const { return counts_.data() + n; }

  bool is_few() const { return rows_ <= kFewRows; }
  double flops() const { return flops_; }
  void ClearFlops() { flops_ = 0; }

 private:
  enum class Kind : uint8_t { kStore, kGated, kLogits };

  MatmulFewArgs FewArgs(const DeviceMatrix& w, float* y) const;
  MatmulBatchArgs BatchArgs(const DeviceMatrix& w) const;
  RowOutput Terms(uint16_t* hi, int64_t width) const;
  MatmulWorkspace Workspace() const { return {workspace_.data(), static_cast<size_t>(workspace_.size())}; }
  RowInput MultiplyMany(const char* what, const DeviceMatrix& w, Scratch<float>& y, gpuStream stream);
  // Tells of the weights, x, and `result_bytes` for each result.
  void NoteProduct(const DeviceMatrix& w, int64_t result_bytes) const;
  // Runs the faster one of both, at least once.
  using Work = std::function<void()>;
  void RunFaster(const DeviceMatrix& w, Kind kind, gpuStream stream, const Work& batch, const Work& many);
  void CountFlops(const DeviceMatrix& w);

  int64_t terms_;
  int multiprocessors_;
  bool measures_batch_;
  std::map<std::array<int64_t, 4>, bool> batch_is_faster_;  // by rows, outputs, cols, kind
  int64_t rows_ = 0, room_ = 0;
  Scratch<float> values_;            // [kFewRows, width]
  Scratch<uint16_t> split_;          // [terms, rows, width]
  Scratch<uint16_t> gated_;          // the same, where the product that makes it reads split_
  const uint16_t* input_ = nullptr;  // of the next product of many rows
  Scratch<int32_t> counts_;          // 0 .. kMostCount
  Scratch<BestLogit> cta_best_;      // [CTAs, kFewRows]
  Scratch<std::byte> workspace_;
  ManyRowsMatmul many_;
  double flops_ = 0;
};

}  // namespace lapidary::gpu
