#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, comes before highway.h

#include "hwy/highway.h"

#include "kernels/cpu/dot_tile-inl.h"

#ifndef LAPIDARY_KERNELS_CPU_MATMUL_PARTS_
#define LAPIDARY_KERNELS_CPU_MATMUL_PARTS_
namespace lapidary::cpu {

// A part of the outputs [n_begin, n_end) of a product of few rows: tiles [i_begin, i_end), or what all tiles leave
// over.
struct StreamPart {
  size_t n_begin, n_end;
  bool rest;
  size_t i_begin = 0, i_end = 0;
};

// Linear streams of weights that a thread reads at once in a product of one row, of at most kShortColumns columns or of
// more, and of few rows. Short rows leave it to the hardware to prefetch, and only help it across ends of pages; with
// more columns the activations no longer stay in the first-level cache. Zen 4, 2 threads, 2026-12-01, GB/s of 58,
// mapped weights: one row of 1,536 columns on 2 streams 54, 3 streams without help 52, with every line prefetched 46;
// in moments when one core is slowed down those without help fall to 33, with it to 40. 12,288 columns, 3 streams, of
// 51 in such a moment: every line 39, else 27 to 33.
constexpr int kShortRowStreams = 2, kLongRowStreams = 3, kFewRowsStreams = 4;
constexpr size_t kShortColumns = 2048;

constexpr int StreamsOf(size_t rows, size_t k) {
  if (rows > 1) return kFewRowsStreams;
  return k <= kShortColumns ? kShortRowStreams : kLongRowStreams;
}

}  // namespace lapidary::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {

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

// Products of up to kFewRows rows run at the speed of memory. A thread's share of the outputs is cut into runs of
// rows that lie together, and a tile takes one row of each: tile i is rows i of all runs. So the thread reads that many
// linear streams, which is what hardware prefetchers follow best; rows side by side, two in a page, confuse them.
// Measured 2026-11-30, 2 cores of Zen 4 with 55 GB/s, K = 1536: neighbouring rows 36 GB/s (32 with software prefetch),
// separate runs 50.
//
// Rows of each run: how many tiles there are.
size_t RunOf(size_t rows, size_t k, size_t outputs) {
  const size_t run = outputs / StreamsOf(rows, k);
  // A large even distance would put all streams on the same memory banks and cache sets.
  return run > 64 && run % 2 == 0 ? run - 1 : run;
}

// One row of each run at a time. kRows: `rows` where it makes one tile, else 0.
template <class Load, Prefetch kPrefetch, int kRows, int kStreams>
HWY_NOINLINE void StreamTiles(TileArgs<typename Load::T> args, size_t rows, size_t k, size_t tiles) {
  const size_t block = DotBlockSize(k);
  for (size_t i = 0; i < tiles; ++i) {
    if constexpr (kRows > 0) {
      auto sums = DotTile<Load, kPrefetch, kRows, kStreams>(args, 0, std::min(k, block));
      for (size_t begin = block; begin < k; begin += block) {
        sums.Add(DotTile<Load, kPrefetch, kRows, kStreams>(args, begin, std::min(k, begin + block)));
      }
      StoreTile<kRows, kStreams>(args, sums, false);
    } else {
      for (size_t begin = 0; begin < k; begin += block) {
        RowTiles<Load, kPrefetch, kStreams>(args, rows, begin, std::min(k, begin + block), begin > 0);
      }
    }
    args.w += k;
    args.out += 1;
  }
}

// What the runs leave over: neighbouring rows, each column block by block.
template <class Load>
void RestTiles(TileArgs<typename Load::T> args, size_t rows, size_t k, size_t outputs) {
  const auto tiles = [&]<int NR>(std::integral_constant<int, NR>) {
    for (; outputs >= NR; outputs -= NR) {
      const size_t block = DotBlockSize(k);
      for (size_t begin = 0; begin < k; begin += block) {
        RowTiles<Load, Prefetch::kLines, NR>(args, rows, begin, std::min(k, begin + block), begin > 0);
      }
      args.w += NR * k;
      args.out += NR;
    }
  };
  tiles(std::integral_constant<int, kFewRowsStreams>());
  tiles(std::integral_constant<int, 1>());
}

template <class Load>
TileArgs<typename Load::T> Tiles(const float* packed, const MatmulTarget& target, size_t n_begin) {
  TileArgs<typename Load::T> args;
  const size_t k = static_cast<size_t>(target.weight.cols);
  args.x = packed;
  args.x_stride = PackedColumns(k);
  args.w = static_cast<const typename Load::T*>(target.weight.data) + n_begin * k;
  args.w_stride = k;
  args.out = target.out + n_begin;
  args.out_stride = static_cast<size_t>(target.out_stride);
  return args;
}

template <class Load>
void ManyRows(const float* packed, size_t rows, const MatmulTarget& target, size_t n_begin, size_t n_end) {
  const size_t k = static_cast<size_t>(target.weight.cols), block = DotBlockSize(k);
  TileArgs<typename Load::T> args = Tiles<Load>(packed, target, n_begin);
  for (size_t row = 0; row < rows; row += kRowBlock) {
    const size_t count = std::min(kRowBlock, rows - row);
    for (size_t begin = 0; begin < k; begin += block) {
      DotTiles<Load>(args, count, n_end - n_begin, begin, std::min(k, begin + block), begin > 0);
    }
    args.x += count * args.x_stride;
    args.out += count * args.out_stride;
  }
}

// Calls f with a value of the Load that reads `dtype`.
template <class F>
void WithLoad(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kBF16:
      return f(LoadBF16());
    case DType::kF16:
      return f(LoadF16());
    case DType::kF32:
      return f(LoadF32());
  }
}

void ManyRowsPart(const float* packed, size_t rows, const MatmulTarget& target, size_t n_begin, size_t n_end) {
  WithLoad(target.weight.dtype, [&](auto load) { ManyRows<decltype(load)>(packed, rows, target, n_begin, n_end); });
}

void FewRowsPart(const float* packed, size_t rows, const MatmulTarget& target, const StreamPart& part) {
  WithLoad(target.weight.dtype, [&](auto load) {
    using Load = decltype(load);
    const size_t k = static_cast<size_t>(target.weight.cols), outputs = part.n_end - part.n_begin;
    const size_t run = RunOf(rows, k, outputs);
    if (part.rest) {
      const size_t done = StreamsOf(rows, k) * run;
      return RestTiles<Load>(Tiles<Load>(packed, target, part.n_begin + done), rows, k, outputs - done);
    }
    TileArgs<typename Load::T> args = Tiles<Load>(packed, target, part.n_begin);
    args.w += part.i_begin * k;
    args.out += part.i_begin;
    args.w_stride = run * k;
    args.out_step = run;
    const size_t tiles = part.i_end - part.i_begin;
    switch (rows) {
      case 1:
        if (k <= kShortColumns) return StreamTiles<Load, Prefetch::kPages, 1, kShortRowStreams>(args, rows, k, tiles);
        return StreamTiles<Load, Prefetch::kLines, 1, kLongRowStreams>(args, rows, k, tiles);
      case 2:
        return StreamTiles<Load, Prefetch::kLines, 2, kFewRowsStreams>(args, rows, k, tiles);
      case kTileRows:
        return StreamTiles<Load, Prefetch::kLines, kTileRows, kFewRowsStreams>(args, rows, k, tiles);
      default:
        return StreamTiles<Load, Prefetch::kLines, 0, kFewRowsStreams>(args, rows, k, tiles);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapidary::cpu {

HWY_EXPORT(PackedStride);
HWY_EXPORT(Grain);
HWY_EXPORT(PackRows);
HWY_EXPORT(RunOf);
HWY_EXPORT(ManyRowsPart);
HWY_EXPORT(FewRowsPart);

namespace {

// Below this many multiplications one thread is done before the others have started.
constexpr size_t kParallelProducts = 100000;
// Activations below which one thread packs them all before the others have started.
constexpr size_t kParallelPacking = 16384;
// Rows up to which a weight is read from memory just once, all rows at a time.
constexpr size_t kFewRows = 8;
// Weights that a thread takes at a time from a share at least: some microseconds of work, since taking costs 0.1.
constexpr size_t kTakeBytes = 128 << 10;

template <class Task>
void OnThreads(ThreadPool& pool, int threads, const Task& task) {
  if (threads == 1) return task(0);
  pool.Run(task);
}

// Every thread has a share of every target's outputs and takes its tiles from the front. One that is done takes what
// the others have left from the back, so that none waits for one that the system or the memory has slowed down.
void FewRows(ThreadPool& pool, int threads, MatmulScratch& scratch, const float* packed, size_t rows,
             std::span<const MatmulTarget> targets) {
  const auto outputs = HWY_DYNAMIC_DISPATCH(FewRowsPart);
  const size_t grain = HWY_DYNAMIC_DISPATCH(Grain)(), count = static_cast<size_t>(threads);
  const size_t k = static_cast<size_t>(targets[0].weight.cols);
  const auto share = [&](size_t target, size_t owner) {
    return ThreadPool::Part(static_cast<size_t>(targets[target].weight.rows), grain, static_cast<int>(owner), threads);
  };
  SharedRange* tiles = scratch.Ranges(targets.size() * count);
  for (size_t t = 0; t < targets.size(); ++t) {
    for (size_t owner = 0; owner < count; ++owner) {
      const auto [begin, end] = share(t, owner);
      tiles[t * count + owner].Reset(static_cast<uint32_t>(HWY_DYNAMIC_DISPATCH(RunOf)(rows, k, end - begin)));
    }
  }
  const size_t tile_bytes = StreamsOf(rows, k) * k * SizeOf(targets[0].weight.dtype);
  const auto least = static_cast<uint32_t>(kTakeBytes / std::max<size_t>(1, tile_bytes) + 1);
  OnThreads(pool, threads, [&](int thread) {
    for (size_t hop = 0; hop < count; ++hop) {
      const size_t owner = (static_cast<size_t>(thread) + hop) % count;
      for (size_t t = 0; t < targets.size(); ++t) {
        const auto [begin, end] = share(t, owner);
        if (hop == 0 && begin < end) outputs(packed, rows, targets[t], {begin, end, true});
        for (std::pair<uint32_t, uint32_t> i; tiles[t * count + owner].Take(least, hop == 0, i);) {
          outputs(packed, rows, targets[t], {begin, end, false, i.first, i.second});
        }
      }
    }
  });
}

}  // namespace

MatmulScratch::~MatmulScratch() { std::free(data_); }

SharedRange* MatmulScratch::Ranges(size_t count) {
  if (count > range_count_) {
    ranges_ = std::make_unique<SharedRange[]>(count);
    range_count_ = count;
  }
  return ranges_.get();
}

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
  if (m == 1 || m * k < kParallelPacking) {
    pack(dtype, x, 0, m, k, packed);
  } else {
    pool.ParallelFor(m, 1, [&](size_t begin, size_t end, int) { pack(dtype, x, begin, end, k, packed); });
  }
  size_t all_outputs = 0;
  for (const MatmulTarget& target : targets) all_outputs += static_cast<size_t>(target.weight.rows);
  const int threads = m * k * all_outputs < kParallelProducts ? 1 : pool.threads();
  if (m <= kFewRows) return FewRows(pool, threads, scratch, packed, m, targets);
  const auto outputs = HWY_DYNAMIC_DISPATCH(ManyRowsPart);
  const size_t grain = HWY_DYNAMIC_DISPATCH(Grain)();
  OnThreads(pool, threads, [&](int thread) {
    for (const MatmulTarget& target : targets) {
      const auto [begin, end] = ThreadPool::Part(static_cast<size_t>(target.weight.rows), grain, thread, threads);
      if (begin < end) outputs(packed, m, target, begin, end);
    }
  });
}

}  // namespace lapidary::cpu
#endif  // HWY_ONCE
