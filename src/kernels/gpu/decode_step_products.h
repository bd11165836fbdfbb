#pragma once

#include "kernels/gpu/decode_step_input.h"
#include "kernels/gpu/device/mma.h"

// Parts of decode_step.cu: products. A tile is 16 rows of weights on the tensor cores, 8 columns for the input
// (decode_step_input.h). A warp has a part of each phase of k and all rows of its block; the sums of the warps are
// added in order by the threads that finish an output.
namespace lapidary::gpu::decode_step {

// The sums of a term's products with the halves of even and of odd spans, which do not wait for each other.
struct TileSums {
  float v[2][2][4] = {};
  __device__ __forceinline__ float Of(int i) const { return (v[0][0][i] + v[0][1][i]) + (v[1][0][i] + v[1][1][i]); }
};

// The sums of rows g and g + 8 for columns 2 t and 2 t + 1 of the step's rows, from those of the terms.
__device__ __forceinline__ void AddTerms(const TileSums (&terms)[kTerms], float (&sum)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = terms[0].Of(i) + (terms[1].Of(i) + terms[2].Of(i));
}
// One row, whose terms are columns: lane t = 0 has its sums in [0] and [2].
__device__ __forceinline__ void AddTerms(const TileSums (&terms)[1], float (&sum)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) sum[i] = terms[0].Of(i) + (terms[0].Of(i + 1) + WarpShuffleXor(terms[0].Of(i), 1));
}

// The warp's sums of the next tile of the ring, which is tile `tile` of the share.
template <int kRowSlots>
__device__ __forceinline__ void MultiplyTile(Context<kRowSlots>& c, const Share& share, bool gated, int tile,
                                             int phase_k, const Activations<kRowSlots>& x, float (&sum)[4]) {
  Ring& ring = c.ring;
  const WarpSpans spans(phase_k, c.thread);
  const int g = c.Lane() / 4, in_slot = g & ((1 << share.slot_rows_log2) - 1);
  const int row_offset = (in_slot * phase_k + spans.K(0)) * 2;
  const unsigned char* row[2];
  int end[2], slots = 0;  // nothing was loaded where there are no weights
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int rows = share.RowsOfHalf(2 * tile + half, gated);
    row[half] = ring.data + ring.After(slots + (g >> share.slot_rows_log2)) * kSlotBytes + row_offset;
    end[half] = g < rows ? spans.End(phase_k) : 0;
    slots += share.SlotsOf(rows);
  }
  TileSums sums[Activations<kRowSlots>::kColumnTerms];
  ring.Await(slots, c.Lane());
  // Of two spans, lanes of odd rows load the second first: so the lanes of two rows meet all banks once.
  const bool odd = g % 2 != 0;
  static_assert(kWarpSpans % 2 == 0);
#pragma unroll
  for (int i = 0; i < kWarpSpans; i += 2) {
    uint4 top[2] = {}, bottom[2] = {};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int k = (i + (odd ? 1 - j : j)) * kSpan;
      if (spans.K(0) + k < end[0]) top[j] = *reinterpret_cast<const uint4*>(row[0] + k * 2);
      if (spans.K(0) + k < end[1]) bottom[j] = *reinterpret_cast<const uint4*>(row[1] + k * 2);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint4 a = odd ? top[1 - j] : top[j], b = odd ? bottom[1 - j] : bottom[j];
      const uint32_t first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
      for (int term = 0; term < Activations<kRowSlots>::kColumnTerms; ++term) {
        const uint4& x_span = x.v[i + j][term];
        Mma16816(sums[term].v[j][0], first, x_span.x, x_span.y);
        Mma16816(sums[term].v[j][1], second, x_span.z, x_span.w);
      }
    }
  }
  ring.Release(slots, c.Lane());
  AddTerms(sums, sum);
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

// The block's share of a product, by the consumers. load(phase, x) gives the activations of a phase. The sums go to the
// finishers.
template <int kRowSlots, typename Load>
__device__ __forceinline__ void Multiply(Context<kRowSlots>& c, const Share& share, bool gated, const Load& load) {
  const int tiles = share.Tiles();
  Activations<kRowSlots> x{};  // given here, or registers would hold it through the whole step
#pragma unroll 1
  for (int first = 0; first < tiles; first += kGroupTiles<kRowSlots>) {
    const int group_end = first + share.TilesOfGroup<kRowSlots>(first);
#pragma unroll 1
    for (int phase = 0; phase < share.phases; ++phase) {
      if (first == 0 || share.phases > 1) load(phase, x);
      if (phase == 0) NamedBarrier(kSumsEmpty + c.sums, kConsumers + kFinishers);
#pragma unroll 1
      for (int tile = first; tile < group_end; ++tile) {
        float sum[4];
        MultiplyTile(c, share, gated, tile, share.KOfPhase(phase), x, sum);
        StoreSums(c, c.shared.sums[c.sums], tile - first, sum, phase > 0);
      }
    }
    NamedBarrierArrive(kSumsFull + c.sums, kConsumers + kFinishers);
    c.sums ^= 1;
  }
}

}  // namespace lapidary::gpu::decode_step
