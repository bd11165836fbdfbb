#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

struct MatmulShape {
  int64_t rows = 0;      // of x and y; of all terms together where x is stacked
  int64_t outputs = 0;   // a multiple of 8
  int64_t cols = 0;      // a multiple of 8
  int64_t y_stride = 0;  // values from a row of y to the next, a multiple of 4; 0: outputs
};

// Memory on the device that products on one stream may share.
struct MatmulWorkspace {
  void* data = nullptr;
  size_t size_bytes = 0;
};
inline constexpr size_t kMatmulWorkspaceBytes = size_t{64} << 20;  // enough for every product

// Milliseconds that `work`, which gives work to `stream` and may be run again, takes when its weights come from memory
// and not from a cache: the best of a few runs, between which `scratch` is overwritten. 0 in emulation, after one run.
double ColdMilliseconds(gpuStream stream, const MatmulWorkspace& scratch, const std::function<void()>& work);

// Products of many rows: y = x W^T with x [rows, cols] and W [outputs, cols] bf16, y [rows, outputs] float32, summed in
// float32. An activation of three bf16 terms is stacked: all rows of the first term, then of the second, then of the
// third; its product is the sum of the thirds of y, which RowInput adds on the way into the next operation. So every
// weight is read once for all. Reads 2 * cols * (rows + outputs) bytes, writes 4 * rows * outputs.
//
// Runs on cuBLASLt, loaded at run time. The first product of a size tries the algorithms that the library proposes
// (none whose order of sums is left to chance) and remembers the fastest for all row counts of about that size.
// In a capture nothing is tried: run each size before. Not thread-safe.
class ManyRowsMatmul {
 public:
  // Throws Error kDevice: the library is missing or refuses the device.
  ManyRowsMatmul();
  ~ManyRowsMatmul();
  ManyRowsMatmul(ManyRowsMatmul&&) noexcept;
  ManyRowsMatmul& operator=(ManyRowsMatmul&&) noexcept;

  // Throws Error kDevice. All pointers are aligned to 16 bytes.
  void Run(gpuStream stream, const MatmulShape& shape, const uint16_t* x, const uint16_t* w, float* y,
           const MatmulWorkspace& workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Multiplications and additions a second in a large product, the best of a few runs. Takes 200 MB for a moment. 0 in
// emulation.
double MeasureProductRate();

}  // namespace lapidary::gpu
