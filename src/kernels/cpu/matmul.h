#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
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

 private:
  float* data_ = nullptr;
  size_t capacity_ = 0;
};

// For every target: out[r][n] = sum over c of x[r][c] * weight[n][c], float32 activations and sums, x [rows, cols] with
// rows `cols` apart. All targets have the same cols and dtype. Each result is a function of its x row and weight row
// alone: neither the other rows, nor the tiling, nor the number of threads changes a bit. Reads each weight once for up
// to kTileRows rows, then once for every further 128 rows or so from cache. Call from one thread.
void Matmul(ThreadPool& pool, MatmulScratch& scratch, const float* x, int64_t rows, int64_t cols,
            std::span<const MatmulTarget> targets);

}  // namespace lapidary::cpu
