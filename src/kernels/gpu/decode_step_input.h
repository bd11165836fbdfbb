#pragma once

#include "kernels/gpu/decode_step_block.h"
#include "kernels/gpu/device/bf16.h"

// Parts of decode_step.cu: the input of a product. A warp has a part of each phase of k. In a span, lane (g = lane / 4,
// t = lane % 4) takes 8 consecutive k, from 8 t on, of weights g and g + 8 and of column g of the input: two products
// on the tensor cores, whose k are dealt out alike on both sides. Columns are the rows of the step, each term a product
// of its own; for a step of one row they are its terms, which the threads of the block make together.
namespace lapidary::gpu::decode_step {

struct Eight {
  float v[8];

  __device__ __forceinline__ void operator*=(const Eight& by) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= by.v[i];
  }
  __device__ __forceinline__ void operator+=(const Eight& more) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] += more.v[i];
  }
};

__device__ __forceinline__ Eight Load8(const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ void Store8(float* to, const Eight& x) {
  *reinterpret_cast<float4*>(to) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

__device__ __forceinline__ Eight EightOf(const Cells4 (&cells)[2]) {
  const float4 a = cells[0].Values(), b = cells[1].Values();
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// Terms of eight values, pairs in uint32s.
__device__ __forceinline__ void Split(const Eight& x, uint4 (&terms)[kTerms]) {
  uint32_t pairs[4][kTerms];
#pragma unroll
  for (int i = 0; i < 4; ++i) SplitBf16Pair(x.v[2 * i], x.v[2 * i + 1], pairs[i]);
#pragma unroll
  for (int term = 0; term < kTerms; ++term)
    terms[term] = make_uint4(pairs[0][term], pairs[1][term], pairs[2][term], pairs[3][term]);
}

// The lane's input of a phase, of its column: each term, or of one row just the lane's.
template <int kRowSlots>
struct Activations {
  static constexpr int kColumnTerms = kRowSlots == 1 ? 1 : kTerms;
  uint4 v[kWarpSpans][kColumnTerms];
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
  // Spans of the warp begin before it.
  __device__ __forceinline__ int End(int phase_k) const {
    const int end = (begin + count) * kSpan;
    return end < phase_k ? end : phase_k;
  }
};

// Activations that lie in cells [row, k], k < phase_k, times `factor` [row, k] where there is one.
template <int kRowSlots>
__device__ __forceinline__ void AwaitRows(Context<kRowSlots>& c, const float* cells, int64_t row_stride, int phase_k,
                                          const float* factor, int64_t factor_stride, Activations<kRowSlots>& x) {
  const WarpSpans spans(phase_k, c.thread);
  const int row = c.Lane() / 4, end = row < c.args.rows ? spans.End(phase_k) : 0;
  const float* from[2 * kWarpSpans];
  Cells4 values[2 * kWarpSpans];
  bool wanted[2 * kWarpSpans];
#pragma unroll
  for (int i = 0; i < 2 * kWarpSpans; ++i) {
    from[i] = cells + row * row_stride + spans.K(i / 2) + i % 2 * 4;
    wanted[i] = spans.K(i / 2) < end;
  }
  AwaitCells4(from, wanted, c.patience, values);
#pragma unroll
  for (int i = 0; i < kWarpSpans; ++i) {
    Eight value = EightOf({values[2 * i], values[2 * i + 1]});
    if (factor != nullptr && wanted[2 * i]) value *= Load8(factor + row * factor_stride + spans.K(i));
    Split(value, x.v[i]);
  }
  WarpSync();
}

// The residual stream from k `begin` on, as Join left it, times the norm's weight where it is normed.
template <int kRowSlots>
__device__ __forceinline__ void LoadRows(const Context<kRowSlots>& c, int begin, int phase_k, bool normed,
                                         Activations<kRowSlots>& x) {
  const WarpSpans spans(phase_k, c.thread);
  const int row = c.Lane() / 4, end = row < c.args.rows ? spans.End(phase_k) : 0;
#pragma unroll
  for (int i = 0; i < kWarpSpans; ++i) {
    Eight value{};
    if (spans.K(i) < end) {
      value = Load8(c.shared.hidden[row] + begin + spans.K(i));
      if (normed) value *= Load8(c.shared.product.norm + begin + spans.K(i));
    }
    Split(value, x.v[i]);
  }
}

// One row: the terms of the thread's eight values, from k = 8 `place` on.
__device__ __forceinline__ void StoreTerms(Shared<1>& shared, int place, const Eight& x) {
  uint4 terms[kTerms];
  Split(x, terms);
#pragma unroll
  for (int term = 0; term < kTerms; ++term) shared.product.terms[term][place] = terms[term];
}

// One row: as AwaitRows, into shared memory.
__device__ __forceinline__ void AwaitTerms(Context<1>& c, const float* cells, int phase_k, const float* factor) {
  const int k = c.thread * 8;
  const bool is_wanted = k < phase_k;
  Eight by{};  // loaded before the wait
  if (factor != nullptr && is_wanted) by = Load8(factor + k);
  const float* const from[2] = {cells + k, cells + k + 4};
  const bool wanted[2] = {is_wanted, is_wanted};
  Cells4 values[2];
  AwaitCells4(from, wanted, c.patience, values);
  Eight x = EightOf(values);
  if (factor != nullptr) x *= by;
  c.Sync();  // all have loaded the terms that were there
  if (is_wanted) StoreTerms(c.shared, c.thread, x);
  c.Sync();
}

// One row: the lane's input from shared memory, from k `begin` on.
__device__ __forceinline__ void LoadTerms(const Context<1>& c, int begin, int phase_k, Activations<1>& x) {
  const WarpSpans spans(phase_k, c.thread);
  const int term = c.Lane() / 4, end = term < kTerms ? spans.End(phase_k) : 0;
#pragma unroll
  for (int i = 0; i < kWarpSpans; ++i) {
    x.v[i][0] = uint4{};
    if (spans.K(i) < end) x.v[i][0] = c.shared.product.terms[term][(begin + spans.K(i)) / 8];
  }
}

}  // namespace lapidary::gpu::decode_step
