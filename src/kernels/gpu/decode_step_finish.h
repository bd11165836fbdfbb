#pragma once

#include <cmath>

#include "kernels/gpu/decode_step_products.h"
#include "kernels/gpu/decode_step_residual.h"
#include "kernels/gpu/device/gelu.h"

// Parts of decode_step.cu: what becomes of the sums of a product. Two warps of the block do it, while the consumers are
// at the next tiles or wait for the next input.
namespace lapidary::gpu::decode_step {

__device__ __forceinline__ bool IsBetter(float value, int32_t id, const BestLogit& than) {
  return value > than.value || (value == than.value && id < than.id) || (than.id < 0 && value == value);
}

__device__ __forceinline__ float SumOfWarps(const float* sums) {
  float total = sums[0];
#pragma unroll
  for (int warp = 1; warp < kConsumerWarps; ++warp) total += sums[warp];
  return total;
}

template <int kRowSlots>
struct Finisher {
  Context<kRowSlots>& c;
  const DecodeStepArgs& a;
  int shape = 0, next_shape = 0;  // of the layer and of the next
  BestLogit best{0.0f, -1};       // of row thread % kRowSlots

  __device__ __forceinline__ explicit Finisher(Context<kRowSlots>& context) : c(context), a(context.args) {}

  __device__ __forceinline__ void Run() {
    for (int half = 0; half < 2; ++half) NamedBarrierArrive(kSumsEmpty + half, kConsumers + kFinishers);
    next_shape = a.layer[0].shape;
    const auto begin = [&](int l) {
      shape = next_shape;
      if (l + 1 < a.layers) next_shape = a.layer[l + 1].shape;
    };
    ForEachProduct(a, begin, [&](int l, DecodeMatrix matrix) { Take(l, c.shared.layer[l % 2], matrix); });
    StoreBest();
  }

  __device__ __forceinline__ void Take(int l, const DecodeLayer& layer, DecodeMatrix matrix) {
    const Share share = ShareOf(c.shared.shares, shape, matrix);
    const int tiles = share.Tiles();
    float factor = 1.0f;  // of the norm, which the sums of a product of the stream still lack
#pragma unroll 1
    for (int first = 0; first < tiles; first += kGroupTiles<kRowSlots>) {
      NamedBarrier(kSumsFull + c.sums, kConsumers + kFinishers);
      // From here on the consumers have joined the stream, and their copy of the layer is there.
      if (first == 0 && TakesStream(matrix) && matrix != DecodeMatrix::kPerLayerGate)
        factor = NormFactor(c, SumOfSquares(c, c.shared.squares[1], c.thread % kRowSlots));
      TakeGroup(layer, matrix, share, first, factor);
      NamedBarrierArrive(kSumsEmpty + c.sums, kConsumers + kFinishers);
      c.sums ^= 1;
    }
    c.Mark(l, static_cast<int>(matrix) * kDecodeMarksOfProduct + 2);
  }

  // Tiles from `first` on. A thread has outputs of one row of the step.
  __device__ __forceinline__ void TakeGroup(const DecodeLayer& layer, DecodeMatrix matrix, const Share& share,
                                            int first, float factor) {
    const bool gated = IsGated(matrix);
    const int rows_log2 = gated ? 3 : 4, outputs = share.TilesOfGroup<kRowSlots>(first) << rows_log2;
    const float* sums = c.shared.sums[c.sums];
    const int token = c.thread % kRowSlots;
    if (token >= a.rows) return;
#pragma unroll 1
    for (int i = c.thread / kRowSlots; i < outputs; i += kFinishers / kRowSlots) {
      const int tile = i >> rows_log2, row = i & ((1 << rows_log2) - 1), unit = (first << rows_log2) + i;
      if (unit >= share.row_count) return;
      const float* at = sums + ((tile * kTileRows + row) * kRowSlots + token) * kSumStride;
      const float up = gated ? SumOfWarps(at + kHalfRows * kRowSlots * kSumStride) * factor : 0.0f;
      Finish(layer, matrix, share.part, share.row_begin + unit, token, SumOfWarps(at) * factor, up);
    }
  }

  // What becomes of an output; `up` belongs to a gated one.
  __device__ __forceinline__ void Finish(const DecodeLayer& layer, DecodeMatrix matrix, int part, int n, int token,
                                         float value, float up) {
    if (matrix == DecodeMatrix::kHead) {
      StoreLogit(n, token, value);
      return;
    }
    if (matrix == DecodeMatrix::kGateUp || matrix == DecodeMatrix::kPerLayerGate) value = GeluTanh(value);
    if (matrix == DecodeMatrix::kGateUp) value *= up;
    Publish(c.Row(layer, token) + layer.cells.outputs[static_cast<int>(matrix)] + part * a.hidden + n, value);
  }

  __device__ __forceinline__ void StoreLogit(int n, int token, float value) {
    if (a.softcap > 0.0f) value = a.softcap * tanhf(value / a.softcap);
    a.logits[int64_t{token} * a.vocab + n] = value;
    if (IsBetter(value, n, best)) best = {value, n};
  }

  __device__ __forceinline__ void StoreBest() {
    const int i = c.thread;
    c.shared.best[i] = best;
    NamedBarrier(kFinisherBarrier, kFinishers);
    if (i >= a.rows) return;
    for (int other = i + kRowSlots; other < kFinishers; other += kRowSlots) {
      const BestLogit& b = c.shared.best[other];
      if (b.id >= 0 && IsBetter(b.value, b.id, best)) best = b;
    }
    a.best[static_cast<int64_t>(blockIdx.x) * kFewRows + i] = best;
  }
};

}  // namespace lapidary::gpu::decode_step
