#pragma once

#include "kernels/gpu/decode_step_block.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/mma.h"

// Parts of decode_step.cu: products. A warp has a part of each phase of k and all rows of its block; the sums of the
// warps are added in order by the threads that finish an output. A tile is 16 rows of weights on the tensor cores, 8
// columns for the rows of the step. In a span, lane (g = lane / 4, t = lane % 4) takes 8 consecutive k, from 8 t on, of
// weights g and g + 8 and of row g of the step: two products, whose k are dealt out alike on both sides.
namespace lapidary::gpu::decode_step {

inline constexpr int kTerms = 3;

struct Eight {
  float v[8];
};

__device__ __forceinline__ Eight Load8(const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// The lane's activations of a phase.
struct Activations {
  uint32_t v[kWarpSpans][2][kTerms][2];

  __device__ __forceinline__ void Set(int span, const Eight& x) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        uint32_t terms[kTerms];
        SplitBf16Pair(x.v[half * 4 + pair * 2], x.v[half * 4 + pair * 2 + 1], terms);
#pragma unroll
        for (int term = 0; term < kTerms; ++term) v[span][half][term][pair] = terms[term];
      }
    }
  }
};

// The spans of a phase that a warp has.
struct WarpSpans {
  int begin, count;

  int lane_k;

  __device__ __forceinline__ WarpSpans(int phase_k, int thread) {
    const int spans = (phase_k + kSpan - 1) / kSpan, warp = thread / kWarpSize;
    begin = spans * warp / kConsumerWarps;
    count = spans * (warp + 1) / kConsumerWarps - begin;
    lane_k = begin * kSpan + thread % 4 * 8;
  }
  // Where the lane's 8 k of span i begin, in the phase.
  __device__ __forceinline__ int K(int i) const { return lane_k + i * kSpan; }
};

// Activations that lie in cells [row, k], k < phase_k, times `factor` [row, k] where there is one.
template <int kRowSlots>
__device__ __forceinline__ void AwaitActivations(Context<kRowSlots>& c, const float* cells, int64_t row_stride,
                                                 int phase_k, const float* factor, int64_t factor_stride,
                                                 Activations& x) {
  const WarpSpans spans(phase_k, c.thread);
  const int row = c.Lane() / 4;
  const float* from[2 * kWarpSpans];
  Cells4 values[2 * kWarpSpans];
  bool wanted[kWarpSpans];
#pragma unroll
  for (int i = 0; i < kWarpSpans; ++i) {
    wanted[i] = i < spans.count && row < c.args.rows && spans.K(i) < phase_k;
    from[2 * i] = cells + row * row_stride + spans.K(i);
    from[2 * i + 1] = from[2 * i] + 4;
    values[2 * i] = values[2 * i + 1] = Cells4{};
    if (wanted[i]) {
      values[2 * i] = LoadCells4(from[2 * i]);
      values[2 * i + 1] = LoadCells4(from[2 * i + 1]);
    }
  }
  // Loaded before the wait is over; a factor belongs to a short k, of which a warp has one span or few.
  Eight first{};
  if (factor != nullptr && wanted[0]) first = Load8(factor + row * factor_stride + spans.K(0));
  auto wait = c.patience.Begin();
  for (;;) {
    bool missing = false;
#pragma unroll
    for (int i = 0; i < 2 * kWarpSpans; ++i) missing |= values[i].HasEmpty();
    if (!missing || !wait.Lasts()) break;
#pragma unroll
    for (int i = 0; i < 2 * kWarpSpans; ++i) {
      if (values[i].HasEmpty()) values[i] = LoadCells4(from[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpSpans; ++i) {
    const float4 a = values[2 * i].Values(), b = values[2 * i + 1].Values();
    Eight value{{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    if (factor != nullptr && wanted[i]) {
      const Eight by = i == 0 ? first : Load8(factor + row * factor_stride + spans.K(i));
#pragma unroll
      for (int j = 0; j < 8; ++j) value.v[j] *= by.v[j];
    }
    x.Set(i, value);
  }
  WarpSync();
}

// The residual stream from k `begin` on, as Join left it, with kNormed times shared.norm.
template <bool kNormed, int kRowSlots>
__device__ __forceinline__ void LoadHidden(const Context<kRowSlots>& c, int begin, int phase_k, Activations& x) {
  const WarpSpans spans(phase_k, c.thread);
  const int row = c.Lane() / 4;
#pragma unroll
  for (int i = 0; i < kWarpSpans; ++i) {
    const int k = begin + spans.K(i);
    Eight value{};
    if (i < spans.count && row < c.args.rows && spans.K(i) < phase_k) {
      value = Load8(c.shared.hidden[row] + k);
      if constexpr (kNormed) {
        const Eight w = Load8(c.shared.norm + k);
#pragma unroll
        for (int j = 0; j < 8; ++j) value.v[j] *= w.v[j];
      }
    }
    x.Set(i, value);
  }
}

// The warp's sums of the next tile of the ring, which has `top` and `bottom` rows in its halves.
template <int kRowSlots>
__device__ __forceinline__ void MultiplyTile(Context<kRowSlots>& c, const Share& share, int top, int bottom,
                                             int phase_k, const Activations& x, float (&sum)[4]) {
  Ring& ring = c.ring;
  const int g = c.Lane() / 4;
  const int top_slots = share.SlotsOf(top), slots = top_slots + share.SlotsOf(bottom);
  const int row_bytes = phase_k * 2, in_slot = g & ((1 << share.slot_rows_log2) - 1);
  const unsigned char* top_row = ring.data + ring.After(g >> share.slot_rows_log2) * kSlotBytes + in_slot * row_bytes;
  const unsigned char* bottom_row =
      ring.data + ring.After(top_slots + (g >> share.slot_rows_log2)) * kSlotBytes + in_slot * row_bytes;
  const WarpSpans spans(phase_k, c.thread);
  float sums[2][kTerms][4] = {};  // products that do not wait for each other
  ring.Await(slots);
#pragma unroll
  for (int i = 0; i < kWarpSpans; ++i) {
    if (i >= spans.count) break;
    const int k = spans.K(i);
    uint4 a{}, b{};  // nothing was loaded where there are no weights
    if (g < top && k < phase_k) a = *reinterpret_cast<const uint4*>(top_row + k * 2);
    if (g < bottom && k < phase_k) b = *reinterpret_cast<const uint4*>(bottom_row + k * 2);
    const uint32_t weights[2][4] = {{a.x, b.x, a.y, b.y}, {a.z, b.z, a.w, b.w}};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int term = 0; term < kTerms; ++term)
        Mma16816(sums[half][term], weights[half], x.v[i][half][term][0], x.v[i][half][term][1]);
    }
  }
  ring.Release(slots, c.Lane());
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[i] = (sums[0][0][i] + sums[1][0][i]) + ((sums[0][1][i] + sums[1][1][i]) + (sums[0][2][i] + sums[1][2][i]));
  }
}

// The warp's sums of one tile of a group; those of later phases are added to those of the first.
template <int kRowSlots>
__device__ __forceinline__ void StoreSums(const Context<kRowSlots>& c, float* sums, int tile, const float (&sum)[4],
                                          bool add) {
  const int g = c.Lane() / 4, column = c.Lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * kHalfRows, token = column + i % 2;
    if (token >= kRowSlots) continue;
    float& at = sums[((tile * kTileRows + row) * kRowSlots + token) * kSumStride + c.Warp()];
    at = add ? at + sum[i] : sum[i];
  }
}

__device__ __forceinline__ float SumOfWarps(const float* sums) {
  float total = sums[0];
#pragma unroll
  for (int warp = 1; warp < kConsumerWarps; ++warp) total += sums[warp];
  return total;
}

// Hands the sums of a group of tiles from tile `first` on to finish(n, token, value), or, gated, to finish(n, token,
// gate, up).
template <int kRowSlots, bool kGated, typename Finish>
__device__ __forceinline__ void FinishGroup(const Context<kRowSlots>& c, const Share& share, int first,
                                            const float* sums, const Finish& finish) {
  constexpr int kRows = kGated ? kHalfRows : kTileRows, kOutputs = kGroupTiles<kRowSlots> * kRows * kRowSlots;
  const int i = c.thread, token = i % kRowSlots, row = i / kRowSlots % kRows;
  const int tile = i / (kRowSlots * kRows), unit = (first + tile) * kRows + row;
  if (i >= kOutputs || token >= c.args.rows || unit >= share.row_count) return;
  const float* at = sums + ((tile * kTileRows + row) * kRowSlots + token) * kSumStride;
  if constexpr (kGated) {
    finish(share.row_begin + unit, token, SumOfWarps(at), SumOfWarps(at + kHalfRows * kRowSlots * kSumStride));
  } else {
    finish(share.row_begin + unit, token, SumOfWarps(at));
  }
}

// The block's share of a product. load(phase, x) gives the activations of a phase.
template <int kRowSlots, bool kGated, typename Load, typename Finish>
__device__ __forceinline__ void Multiply(Context<kRowSlots>& c, const Share& share, const Load& load,
                                         const Finish& finish) {
  constexpr int kTiles = kGroupTiles<kRowSlots>;
  const int tiles = (share.halves + 1) / 2;
  if (tiles == 0) return;
  Activations x;  // given once on every way here, or registers would hold it through the whole step
  load(0, x);
  for (int first = 0; first < tiles; first += kTiles) {
    const int count = tiles - first < kTiles ? tiles - first : kTiles;
    float* sums = c.shared.sums[c.sums];
    c.sums ^= 1;
    for (int phase = 0; phase < share.phases; ++phase) {
      if (phase > 0 || (first > 0 && share.phases > 1)) load(phase, x);
      for (int tile = 0; tile < count; ++tile) {
        const int half = 2 * (first + tile);
        float sum[4];
        MultiplyTile(c, share, share.RowsOfHalf(half, kGated), share.RowsOfHalf(half + 1, kGated),
                     share.KOfPhase(phase), x, sum);
        StoreSums(c, sums, tile, sum, phase > 0);
      }
    }
    c.Sync();
    FinishGroup<kRowSlots, kGated>(c, share, first, sums, finish);
  }
}

}  // namespace lapidary::gpu::decode_step
