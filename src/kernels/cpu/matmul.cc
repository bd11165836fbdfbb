#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, comes before highway.h

#include "hwy/highway.h"

#include "kernels/cpu/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {

// Rows up to which a weight is read from memory just once, all rows at a time.
constexpr size_t kFewRows = 8;
// Beyond, this many rows are taken together, columns outermost: a block of their activations (512 KB at most) stays in
// the second-level cache. Zen 4, 2026-11-30: 128 beats 256 by 3 % (AVX2: 7 %) and 64 by 2 %.
constexpr size_t kRowBlock = 128;

size_t PackedStride(int64_t cols) { return PackedColumns(static_cast<size_t>(cols)); }
size_t Grain() { return kTileOutputs; }

void PackRows(DType dtype, const float* x, size_t row_begin, size_t row_end, size_t cols, float* packed) {
  const size_t stride = PackedColumns(cols);
  for (size_t r = row_begin; r < row_end; ++r) {
    if (dtype == DType::kBF16) {
      PackRow<LoadBF16>(x + r * cols, cols, packed + r * stride);
    } else {
      PackRow<LoadF32>(x + r * cols, cols, packed + r * stride);
    }
  }
}

// A thread's share of the outputs for up to kFewRows rows, at the speed of memory: the share is cut into kTileOutputs
// runs of rows that lie together, and a tile takes one row of each. So the thread reads that many linear streams, which
// is what hardware prefetchers follow best; rows side by side, two in a page, confuse them. Measured 2026-11-30, 2
// cores of Zen 4 with 55 GB/s, K = 1536: neighbouring rows 36 GB/s (32 with software prefetch), separate runs 50.
template <class Load>
void MatvecPart(TileArgs<typename Load::T> args, size_t rows, size_t outputs, size_t k) {
  const size_t block = DotBlockSize(k);
  size_t run = outputs / kTileOutputs;
  if (run > 1 && run % 2 == 0) --run;  // an even distance would put all streams on the same memory banks and cache sets
  TileArgs<typename Load::T> tile = args;
  tile.w_stride = run * k;
  tile.out_step = run;
  tile.ahead = (rows == 1 ? 512 : 1024) / sizeof(typename Load::T);  // more rows take longer over what has come
  for (size_t i = 0; i < run; ++i) {
    for (size_t begin = 0; begin < k; begin += block) {
      DotTiles<Load, true>(tile, rows, kTileOutputs, begin, std::min(k, begin + block), begin > 0);
    }
    tile.w += k;
    tile.out += 1;
  }
  args.w += run * kTileOutputs * k;
  args.out += run * kTileOutputs;
  for (size_t begin = 0; begin < k; begin += block) {
    DotTiles<Load>(args, rows, outputs - run * kTileOutputs, begin, std::min(k, begin + block), begin > 0);
  }
}

template <class Load>
void MatmulPart(const float* packed, size_t rows, const MatmulTarget& target, size_t n_begin, size_t n_end) {
  using T = typename Load::T;
  const size_t k = static_cast<size_t>(target.weight.cols);
  const size_t block = DotBlockSize(k);
  TileArgs<T> args;
  args.x = packed;
  args.x_stride = PackedColumns(k);
  args.w = static_cast<const T*>(target.weight.data) + n_begin * k;
  args.w_stride = k;
  args.out = target.out + n_begin;
  args.out_stride = static_cast<size_t>(target.out_stride);
  if (rows <= kFewRows) return MatvecPart<Load>(args, rows, n_end - n_begin, k);
  for (size_t row = 0; row < rows; row += kRowBlock) {
    const size_t count = std::min(kRowBlock, rows - row);
    for (size_t begin = 0; begin < k; begin += block) {
      DotTiles<Load>(args, count, n_end - n_begin, begin, std::min(k, begin + block), begin > 0);
    }
    args.x += count * args.x_stride;
    args.out += count * args.out_stride;
  }
}

void MatmulOutputs(const float* packed, size_t rows, const MatmulTarget& target, size_t n_begin, size_t n_end) {
  switch (target.weight.dtype) {
    case DType::kBF16:
      return MatmulPart<LoadBF16>(packed, rows, target, n_begin, n_end);
    case DType::kF16:
      return MatmulPart<LoadF16>(packed, rows, target, n_begin, n_end);
    case DType::kF32:
      return MatmulPart<LoadF32>(packed, rows, target, n_begin, n_end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapidary::cpu {

HWY_EXPORT(PackedStride);
HWY_EXPORT(Grain);
HWY_EXPORT(PackRows);
HWY_EXPORT(MatmulOutputs);

namespace {

// Below this many multiplications one thread is done before the others have started.
constexpr size_t kParallelProducts = 100000;

}  // namespace

MatmulScratch::~MatmulScratch() { std::free(data_); }

float* MatmulScratch::Get(size_t floats) {
  if (floats > capacity_) {
    std::free(data_);
    capacity_ = (floats + 15) / 16 * 16;
    data_ = static_cast<float*>(std::aligned_alloc(64, capacity_ * sizeof(float)));
    if (data_ == nullptr) {
      capacity_ = 0;
      throw std::bad_alloc();
    }
  }
  return data_;
}

void Matmul(ThreadPool& pool, MatmulScratch& scratch, const float* x, int64_t rows, int64_t cols,
            std::span<const MatmulTarget> targets) {
  if (rows == 0 || targets.empty()) return;
  const size_t m = static_cast<size_t>(rows), k = static_cast<size_t>(cols);
  const DType dtype = targets[0].weight.dtype;
  float* packed = scratch.Get(m * HWY_DYNAMIC_DISPATCH(PackedStride)(cols));
  const auto pack = HWY_DYNAMIC_DISPATCH(PackRows);
  if (m * k < 65536) {
    pack(dtype, x, 0, m, k, packed);
  } else {
    pool.ParallelFor(m, 1, [&](size_t begin, size_t end, int) { pack(dtype, x, begin, end, k, packed); });
  }
  const auto outputs = HWY_DYNAMIC_DISPATCH(MatmulOutputs);
  const size_t grain = HWY_DYNAMIC_DISPATCH(Grain)();
  const auto part = [&](int thread, int threads) {
    for (const MatmulTarget& target : targets) {
      const auto [begin, end] = ThreadPool::Part(static_cast<size_t>(target.weight.rows), grain, thread, threads);
      if (begin < end) outputs(packed, m, target, begin, end);
    }
  };
  size_t all_outputs = 0;
  for (const MatmulTarget& target : targets) all_outputs += static_cast<size_t>(target.weight.rows);
  if (m * k * all_outputs < kParallelProducts) return part(0, 1);
  pool.Run([&](int thread) { part(thread, pool.threads()); });
}

}  // namespace lapidary::cpu
#endif  // HWY_ONCE
