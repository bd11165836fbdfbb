// Dot products of rows of activations with rows of weights: the one reduction order that every product and every
// attention score of the CPU backend uses (docs/numerics.md).
//
// The K columns are cut into DotBlocks(K) blocks of equal size. Inside a block one vector accumulator per (row, output)
// adds fma(x, w) in steps of 2 L columns: the first L of the step, then the second; the accumulator is folded by
// halves; block sums are added first to last. Nothing in it depends on which other rows or outputs share a tile, so any
// tiling gives the same bits.

#if defined(LAPIDARY_KERNELS_CPU_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAPIDARY_KERNELS_CPU_DOT_TILE_INL_H_
#undef LAPIDARY_KERNELS_CPU_DOT_TILE_INL_H_
#else
#define LAPIDARY_KERNELS_CPU_DOT_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "hwy/highway.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {
constexpr size_t kLanes = HWY_TARGET == HWY_SCALAR ? 1 : HWY_MAX_BYTES / sizeof(float);
constexpr size_t kStep = 2 * kLanes;       // columns of one step
constexpr size_t kDotBlockColumns = 1024;  // keeps a tile's rows in a 32 KB first-level cache

// How the weights of one step become two vectors of floats. bfloat16 pairs are split with one shift or one mask, which
// leaves the even columns in the first vector and the odd ones in the second: activations are packed alike.
struct LoadBF16 {
  using T = uint16_t;
  static constexpr bool kEvenOdd = true;
  static HWY_INLINE VF First(const T* HWY_RESTRICT p) {
    const hn::RebindToUnsigned<DF> du;
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::LoadU(du, reinterpret_cast<const uint32_t*>(p))));
  }
  static HWY_INLINE VF Second(const T* HWY_RESTRICT p) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
    return hn::BitCast(DF(), hn::And(bits, hn::Set(du, 0xffff0000u)));
  }
  static HWY_INLINE void Both(const T* HWY_RESTRICT p, VF& first, VF& second) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
    first = hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
    second = hn::BitCast(DF(), hn::And(bits, hn::Set(du, 0xffff0000u)));
  }
};
struct LoadF16 {
  using T = hwy::float16_t;
  static constexpr bool kEvenOdd = false;
  static HWY_INLINE VF First(const T* HWY_RESTRICT p) {
    return hn::PromoteTo(DF(), hn::LoadU(hn::Rebind<hwy::float16_t, DF>(), p));
  }
  static HWY_INLINE VF Second(const T* HWY_RESTRICT p) { return First(p + kLanes); }
  static HWY_INLINE void Both(const T* HWY_RESTRICT p, VF& first, VF& second) {
    first = First(p);
    second = Second(p);
  }
};
struct LoadF32 {
  using T = float;
  static constexpr bool kEvenOdd = false;
  static HWY_INLINE VF First(const T* HWY_RESTRICT p) { return hn::LoadU(DF(), p); }
  static HWY_INLINE VF Second(const T* HWY_RESTRICT p) { return hn::LoadU(DF(), p + kLanes); }
  static HWY_INLINE void Both(const T* HWY_RESTRICT p, VF& first, VF& second) {
    first = First(p);
    second = Second(p);
  }
};

constexpr size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }
// Floats that a packed row of K columns takes.
constexpr size_t PackedColumns(size_t k) { return RoundUp(k, kStep); }
constexpr size_t DotBlocks(size_t k) { return k == 0 ? 1 : (k + kDotBlockColumns - 1) / kDotBlockColumns; }
// Columns of every block but the last.
constexpr size_t DotBlockSize(size_t k) { return RoundUp((k + DotBlocks(k) - 1) / DotBlocks(k), kStep); }

// Packs a row x [k] for weights read by Load: zero padding up to PackedColumns(k), even-odd order where Load wants it.
template <class Load>
HWY_INLINE void PackRow(const float* HWY_RESTRICT x, size_t k, float* HWY_RESTRICT packed) {
  size_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const DF df;
  for (; c + kStep <= k; c += kStep) {
    const VF a = hn::LoadU(df, x + c), b = hn::LoadU(df, x + c + kLanes);
    hn::StoreU(Load::kEvenOdd ? hn::ConcatEven(df, b, a) : a, df, packed + c);
    hn::StoreU(Load::kEvenOdd ? hn::ConcatOdd(df, b, a) : b, df, packed + c + kLanes);
  }
#endif
  for (size_t i = c; i < PackedColumns(k); ++i) packed[i] = 0.0f;
  for (; c < k; ++c) {
    const size_t i = c % kStep;
    packed[c - i + (Load::kEvenOdd ? i / 2 + (i % 2) * kLanes : i)] = x[c];
  }
}

#if HWY_MAX_BYTES >= 32
// Sums of the lanes of four accumulators, each folded by halves: lane i + lane i + n/2, then again. They are in lanes
// kFoldedLanes of the result.
HWY_INLINE VF FoldFour(VF a, VF b, VF c, VF d) {
  const DF df;
  VF ab = hn::Add(hn::ConcatLowerLower(df, b, a), hn::ConcatUpperUpper(df, b, a));
  VF cd = hn::Add(hn::ConcatLowerLower(df, d, c), hn::ConcatUpperUpper(df, d, c));
#if HWY_MAX_BYTES == 64                                                                          // blocks a0 a1 b0 b1
  const VF dc = hn::SwapAdjacentBlocks(cd);                                                      // blocks c1 c0 d1 d0
  VF v = hn::Add(hn::OddEvenBlocks(dc, ab), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(ab, dc)));  // blocks a c b d
  v = hn::Add(v, hn::Shuffle1032(v));
  return hn::Add(v, hn::Shuffle2301(v));
#else  // blocks a b, c d
  ab = hn::Add(ab, hn::Shuffle1032(ab));
  cd = hn::Add(cd, hn::Shuffle1032(cd));
  return hn::OddEven(hn::Add(cd, hn::Shuffle2301(cd)), hn::Add(ab, hn::Shuffle2301(ab)));
#endif
}
constexpr size_t kFoldedLanes[4] = {0, HWY_MAX_BYTES == 64 ? 8 : 4, HWY_MAX_BYTES == 64 ? 4 : 1,
                                    HWY_MAX_BYTES == 64 ? 12 : 5};
#endif

// The folded sums of kCount accumulators. Where vectors are long they stay in vectors, four in each, so that sums of
// several blocks are added without taking them apart.
template <size_t kCount>
class FoldedSums {
 public:
  HWY_INLINE void Fold(const VF* HWY_RESTRICT v) {
#if HWY_MAX_BYTES >= 32
    const auto at = [&](size_t i) HWY_ATTR { return i < kCount ? v[i] : hn::Zero(DF()); };
    HWY_UNROLL(8)
    for (size_t i = 0; i < kVectors; ++i) sums_[i] = FoldFour(at(4 * i), at(4 * i + 1), at(4 * i + 2), at(4 * i + 3));
#else
    for (size_t i = 0; i < kCount; ++i) {
      HWY_ALIGN float lanes[kLanes];
      hn::Store(v[i], DF(), lanes);
      for (size_t half = kLanes / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
      }
      sums_[i] = lanes[0];
    }
#endif
  }

  HWY_INLINE void Add(const FoldedSums& other) {
#if HWY_MAX_BYTES >= 32
    HWY_UNROLL(8)
    for (size_t i = 0; i < kVectors; ++i) sums_[i] = hn::Add(sums_[i], other.sums_[i]);
#else
    for (size_t i = 0; i < kCount; ++i) sums_[i] += other.sums_[i];
#endif
  }

  // out[i] = the sum of accumulator i.
  HWY_INLINE void Store(float* HWY_RESTRICT out) const {
#if HWY_MAX_BYTES >= 32
    HWY_UNROLL(8)
    for (size_t i = 0; i < kVectors; ++i) {
      HWY_ALIGN float lanes[kLanes];
      hn::Store(sums_[i], DF(), lanes);
      for (size_t j = 0; j < 4 && 4 * i + j < kCount; ++j) out[4 * i + j] = lanes[kFoldedLanes[j]];
    }
#else
    for (size_t i = 0; i < kCount; ++i) out[i] = sums_[i];
#endif
  }

 private:
#if HWY_MAX_BYTES >= 32
  static constexpr size_t kVectors = (kCount + 3) / 4;
  VF sums_[kVectors];
#else
  float sums_[kCount];
#endif
};

// Keeps a loaded value in a register: compilers prefer to read it again as a memory operand of every multiply-add,
// which on AVX2 makes loads the bottleneck (Zen 4, 2 threads, 2026-11-30: 142 GFLOP/s with them, 180 without; AVX-512
// 196 and 210).
HWY_INLINE VF InRegister(VF v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// Where a tile reads and writes. Strides in elements.
template <typename T>
struct TileArgs {
  const float* x;  // packed activations, row m at x + m * x_stride
  size_t x_stride;
  const T* w;  // weights, output n at w + n * w_stride
  size_t w_stride;
  float* out;  // out[m * out_stride + n * out_step]
  size_t out_stride;
  size_t out_step = 1;
};

// Which weights a tile requests ahead.
enum class Prefetch : uint8_t {
  kNone,
  kPages,  // a line every kPageSteps steps: keeps address translations and the hardware's streams ahead of page ends
  kLines   // every line, twice
};

// Bytes of weights that are requested ahead: some lines for the first-level cache, which can wait for no more than 24
// at once, and many for the second-level one, where the latency of memory is spent. Zen 4, 2026-11-30, four rows: 30
// GB/s without, 36 with 1,024 bytes to the first alone, 44 with both.
constexpr size_t kNearBytes = 1024, kFarBytes = 4096, kPageSteps = 8;

// The sums over columns [begin, end), one block, for MR rows and NR outputs: that of row m and output n is number
// m * NR + n.
template <class Load, Prefetch kPrefetch, int MR, int NR>
HWY_INLINE FoldedSums<MR * NR> DotTile(const TileArgs<typename Load::T>& args, size_t begin, size_t end) {
  using T = typename Load::T;
  const DF df;
  VF sum[MR][NR];
  HWY_UNROLL(8)
  for (int m = 0; m < MR; ++m) {
    HWY_UNROLL(8)
    for (int n = 0; n < NR; ++n) sum[m][n] = hn::Zero(df);
  }
  // One half of a step: its x rows are loaded once, then meet the weights of one output after the other.
  const auto half = [&](const float* HWY_RESTRICT x, const T* HWY_RESTRICT w, size_t w_stride, auto load) HWY_ATTR {
    const VF x0 = InRegister(hn::LoadU(df, x));
    const VF x1 = MR > 1 ? InRegister(hn::LoadU(df, x + args.x_stride)) : x0;
    const VF x2 = MR > 2 ? InRegister(hn::LoadU(df, x + 2 * args.x_stride)) : x0;
    const VF x3 = MR > 3 ? InRegister(hn::LoadU(df, x + 3 * args.x_stride)) : x0;
    HWY_UNROLL(8)
    for (int n = 0; n < NR; ++n) {
      const VF weight = load(w + n * w_stride);
      sum[0][n] = hn::MulAdd(x0, weight, sum[0][n]);
      if constexpr (MR > 1) sum[1][n] = hn::MulAdd(x1, weight, sum[1][n]);
      if constexpr (MR > 2) sum[2][n] = hn::MulAdd(x2, weight, sum[2][n]);
      if constexpr (MR > 3) sum[3][n] = hn::MulAdd(x3, weight, sum[3][n]);
    }
  };
  // Small tiles have registers for both halves: they load the weights, which come from memory, only once.
  constexpr int kRegisters = HWY_MAX_BYTES == 64 ? 32 : 16;
  constexpr bool kBothHalves = MR * NR + 2 * MR + 3 <= kRegisters;
  const auto both_halves = [&](const float* HWY_RESTRICT x, const T* HWY_RESTRICT w, size_t w_stride) HWY_ATTR {
    // With prefetches, GCC 12 does better for a single row when x may stay a memory operand: 3 streams of 12,288
    // columns 58 GB/s of 59, else 50 (Zen 4, 2026-12-01).
    constexpr bool kPin = MR > 1 || kPrefetch != Prefetch::kLines;
    VF xa[MR], xb[MR];
    HWY_UNROLL(8)
    for (int m = 0; m < MR; ++m) {
      const VF a = hn::LoadU(df, x + m * args.x_stride), b = hn::LoadU(df, x + m * args.x_stride + kLanes);
      xa[m] = kPin ? InRegister(a) : a;
      xb[m] = kPin ? InRegister(b) : b;
    }
    HWY_UNROLL(8)
    for (int n = 0; n < NR; ++n) {
      VF first, second;
      Load::Both(w + n * w_stride, first, second);
      HWY_UNROLL(8)
      for (int m = 0; m < MR; ++m) sum[m][n] = hn::MulAdd(xa[m], first, sum[m][n]);
      HWY_UNROLL(8)
      for (int m = 0; m < MR; ++m) sum[m][n] = hn::MulAdd(xb[m], second, sum[m][n]);
    }
  };
  const auto step = [&](const T* HWY_RESTRICT w, size_t w_stride, size_t c) HWY_ATTR {
    if constexpr (kBothHalves) {
      both_halves(args.x + c, w, w_stride);
    } else {
      half(args.x + c, w, w_stride, [](const T* at) HWY_ATTR { return Load::First(at); });
      half(args.x + c + kLanes, w, w_stride, [](const T* at) HWY_ATTR { return Load::Second(at); });
    }
  };
  size_t c = begin;
  for (; c + kStep <= end; c += kStep) {
    if constexpr (kPrefetch == Prefetch::kPages) {
      if (c % (kPageSteps * kStep) == 0) {
        HWY_UNROLL(8)
        for (int n = 0; n < NR; ++n) __builtin_prefetch(args.w + n * args.w_stride + c + kFarBytes / sizeof(T), 0, 2);
      }
    }
    if constexpr (kPrefetch == Prefetch::kLines) {
      HWY_UNROLL(8)
      for (int n = 0; n < NR; ++n) {
        const T* at = args.w + n * args.w_stride + c;
        __builtin_prefetch(at + kNearBytes / sizeof(T), 0, 3);
        __builtin_prefetch(at + kFarBytes / sizeof(T), 0, 2);
      }
    }
    step(args.w + c, args.w_stride, c);
  }
  if (c < end) {  // the last columns of a row: pad them, so that nothing behind the row is read
    T tail[NR * kStep];
    std::memset(static_cast<void*>(tail), 0, sizeof(tail));
    for (int n = 0; n < NR; ++n) std::memcpy(tail + n * kStep, args.w + n * args.w_stride + c, (end - c) * sizeof(T));
    step(tail, kStep, c);
  }
  FoldedSums<MR * NR> folded;
  folded.Fold(&sum[0][0]);
  return folded;
}

// out[m][n] = (or +=, when `add`) the sums of a tile.
template <int MR, int NR, typename T>
HWY_INLINE void StoreTile(const TileArgs<T>& args, const FoldedSums<MR * NR>& sums, bool add) {
  float total[MR * NR];
  sums.Store(total);
  for (int m = 0; m < MR; ++m) {
    float* HWY_RESTRICT out = args.out + m * args.out_stride;
    for (int n = 0; n < NR; ++n) {
      const size_t at = static_cast<size_t>(n) * args.out_step;
      out[at] = add ? out[at] + total[m * NR + n] : total[m * NR + n];
    }
  }
}

// The largest tile: its accumulators, one set of x and one weight fill 32 vector registers, or 16.
constexpr int kTileRows = HWY_MAX_BYTES == 64 ? 4 : 3;
constexpr int kTileOutputs = HWY_MAX_BYTES == 64 ? 6 : 4;

// Rows [0, MR) and NR outputs of one block of columns.
template <class Load, Prefetch kPrefetch, int MR, int NR>
HWY_INLINE void OneTile(const TileArgs<typename Load::T>& args, size_t begin, size_t end, bool add) {
  StoreTile<MR, NR>(args, DotTile<Load, kPrefetch, MR, NR>(args, begin, end), add);
}

// Rows [0, rows) and NR outputs of one block of columns, in tiles.
template <class Load, Prefetch kPrefetch, int NR>
HWY_INLINE void RowTiles(TileArgs<typename Load::T> tile, size_t rows, size_t begin, size_t end, bool add) {
  size_t m = 0;
  for (; m + kTileRows <= rows; m += kTileRows) {
    OneTile<Load, kPrefetch, kTileRows, NR>(tile, begin, end, add);
    tile.x += kTileRows * tile.x_stride;
    tile.out += kTileRows * tile.out_stride;
  }
  switch (rows - m) {
    case 1:
      return OneTile<Load, kPrefetch, 1, NR>(tile, begin, end, add);
    case 2:
      return OneTile<Load, kPrefetch, 2, NR>(tile, begin, end, add);
    case 3:
      if constexpr (kTileRows > 3) return OneTile<Load, kPrefetch, 3, NR>(tile, begin, end, add);
      break;
    default:
      break;
  }
}

// Rows [0, rows) and outputs [0, outputs) of one block of columns, in tiles.
template <class Load>
void DotTiles(TileArgs<typename Load::T> args, size_t rows, size_t outputs, size_t begin, size_t end, bool add) {
  size_t n = 0;
  for (; n + kTileOutputs <= outputs; n += kTileOutputs) {
    RowTiles<Load, Prefetch::kNone, kTileOutputs>(args, rows, begin, end, add);
    args.w += kTileOutputs * args.w_stride;
    args.out += kTileOutputs * args.out_step;
  }
  for (; n < outputs; ++n) {
    RowTiles<Load, Prefetch::kNone, 1>(args, rows, begin, end, add);
    args.w += args.w_stride;
    args.out += args.out_step;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#endif  // LAPIDARY_KERNELS_CPU_DOT_TILE_INL_H_
