#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/dtype.h"
#include "base/shared_range.h"
#include "base/thread_pool.h"

namespace lapidary::cpu {

// A weight matrix in place: row-major [rows, cols], rows are outputs.
struct WeightMatrix {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
};

// One product of a Matmul: out [m, weight.rows] with rows `out_stride` apart.
struct MatmulTarget {
  WeightMatrix weight;
  float* out = nullptr;
  int64_t out_stride = 0;
};

// Memory that Matmul packs activations into; grows as needed and is kept. One per concurrent caller.
class MatmulScratch {
 public:
  MatmulScratch() = default;
  ~MatmulScratch();
  MatmulScratch(const MatmulScratch&) = delete;
  MatmulScratch& operator=(const MatmulScratch&) = delete;

  // At least `floats` floats, 64-byte aligned; the contents are undefined.
  float* Get(size_t floats);
  // At least `count`, in any state.
  SharedRange* Ranges(size_t count);

 private:
  std::unique_ptr<SharedRange[]> ranges_;
  size_t range_count_ = 0;
  float* data_ = nullptr;
  size_t capacity_ = 0;
};

// For every target: out[r][n] = sum over c of x[r][c] * weight[n][c], float32 activations and sums, x [rows, cols] with
// rows `cols` apart. All targets have the same cols and dtype. Each result is a function of its x row and weight row
// alone: neither the other rows, nor the tiling, nor the number of threads changes a bit. Reads each weight from
// memory once for up to 8 rows, and once for every 128 rows or so of more. Call from one thread.
void Matmul(ThreadPool& pool, MatmulScratch& scratch, const float* x, int64_t rows, int64_t cols,
            std::span<const MatmulTarget> targets);

}  // namespace lapidary::cpu
