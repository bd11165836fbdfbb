#pragma once

#include "kernels/gpu/decode_step.h"
#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/cells.h"
#include "kernels/gpu/device/warp.h"

// Parts of decode_step.cu: what a block is made of, and its shares of the products.
namespace lapidary::gpu::decode_step {

inline constexpr int kConsumerWarps = 8, kConsumers = kConsumerWarps * kWarpSize;
inline constexpr int kThreads = kConsumers + 2 * kWarpSize;  // a warp that loads, one that empties cells
inline constexpr int kConsumerBarrier = 1, kEndBarrier = 2;

// Weights come in slots of rows of a part of k: a half tile has up to 8 rows, in slots of 8, 4, 2 or 1.
inline constexpr int kHalfRows = 8, kTileRows = 2 * kHalfRows;
inline constexpr int kSlotBytes = 12288;
// A tile takes up to 4 slots: a phase has at most 1,536 k, of which a slot holds 4 rows.
inline constexpr int kLeastSlots = 4, kMostSlots = 16;
// Slots under way at once. What is under way delays every hop between blocks in proportion.
inline constexpr int kSlotsInFlight = 5;
// A lane takes 8 consecutive k of a row at a time: a span is 32 k of a warp.
inline constexpr int kSpan = 32, kWarpSpans = 6;
inline constexpr int kPhaseSpans = kConsumerWarps * kWarpSpans;

// For a note of where a wait took too long: stage, then layer.
enum class Stage : uint32_t { kAttention = 1, kMerge, kO, kGateUp, kDown, kPerLayerGate, kPerLayer, kQkv, kHead };

// So that a part is one phase, where there are enough parts.
inline constexpr int kMostParts = 8;
__host__ __device__ constexpr int PartsOf(int64_t k, int blocks) {
  int parts = 1;
  while (parts < kMostParts && 2 * parts <= blocks && k > parts * kPhaseSpans * kSpan) parts *= 2;
  return parts;
}

inline constexpr int kSegmentPositions = 16;  // at least, where there are so many
__host__ __device__ constexpr int SegmentsAt(int position, int window, int max_segments) {
  const int seen = window == 0 || position < window ? position + 1 : window;
  const int wanted = (seen + kSegmentPositions - 1) / kSegmentPositions;
  return wanted < max_segments ? wanted : max_segments;
}

// y = x W^T for one matrix, cut into `parts` along k, each of which some blocks compute.
struct Product {
  const uint16_t* w;
  int32_t rows, k;
  int32_t parts = 1;
};

// What one block computes of a product. Gated products count pairs of rows, of the gate and of up.
struct Share {
  int part, k_begin, k_count;
  int row_begin, row_count;
  int phase_k, phases;  // of k_count, one after the other
  int slot_rows_log2;   // rows in a slot
  int halves;           // of tiles

  __device__ __forceinline__ int RowsOfHalf(int half, bool gated) const {
    const int left = row_count - (gated ? half / 2 : half) * kHalfRows;
    return left < 0 ? 0 : (left < kHalfRows ? left : kHalfRows);
  }
  __device__ __forceinline__ int SlotsOf(int rows) const {
    return (rows + (1 << slot_rows_log2) - 1) >> slot_rows_log2;
  }
  __device__ __forceinline__ int KOfPhase(int phase) const {
    const int left = k_count - phase * phase_k;
    return left < phase_k ? left : phase_k;
  }
};

__device__ __forceinline__ Share ShareOf(const Product& p, bool gated) {
  // Made anew for each product: kept for the whole step, they would fill the registers.
  int block = static_cast<int>(blockIdx.x);
  Opaque(block);
  const int blocks = static_cast<int>(gridDim.x) / p.parts;
  Share s;
  s.part = block / blocks;
  const bool has_part = s.part < p.parts;
  const int spans = (p.k + kSpan - 1) / kSpan, begin = spans * s.part / p.parts, end = spans * (s.part + 1) / p.parts;
  s.k_begin = begin * kSpan;
  s.k_count = (end * kSpan < p.k ? end * kSpan : p.k) - s.k_begin;
  const int units = gated ? p.rows / 2 : p.rows;
  const int64_t at = block % blocks;
  s.row_begin = static_cast<int>(units * at / blocks);
  s.row_count = has_part ? static_cast<int>(units * (at + 1) / blocks) - s.row_begin : 0;
  s.phases = (end - begin + kPhaseSpans - 1) / kPhaseSpans;
  if (s.phases < 1) s.phases = 1;
  s.phase_k = (end - begin + s.phases - 1) / s.phases * kSpan;
  s.slot_rows_log2 = 3;
  while (s.slot_rows_log2 > 0 && (s.phase_k * 2 << s.slot_rows_log2) > kSlotBytes) --s.slot_rows_log2;
  const int tiles = (s.row_count + kHalfRows - 1) / kHalfRows;
  s.halves = gated ? 2 * tiles : tiles;
  return s;
}

// Tiles whose sums are handed over at once.
template <int kRowSlots>
inline constexpr int kGroupTiles = kRowSlots == 1 ? 4 : 2;
// Floats between the sums of the warps for one output and the next.
inline constexpr int kSumStride = kConsumerWarps + 1;

inline constexpr int kChunkPositions = 32;
inline constexpr int kMaxHeadDim = 512;

struct AttentionShared {
  alignas(16) float query[kDecodeTileHeads][kMaxHeadDim];
  alignas(16) float weight[2][kChunkPositions][kDecodeTileHeads];  // scores, then weights
};

// kRowSlots: 1, or kFewRows for 2 to 8 rows.
template <int kRowSlots>
struct Shared {
  Mbarrier full[kMostSlots], empty[kMostSlots];
  // The residual stream, padded so that 16-byte reads of two rows meet all banks once.
  alignas(16) float hidden[kRowSlots][kDecodeStepWidth + 4];
  alignas(16) float norm[kDecodeStepWidth];  // the weight of the next norm of the stream
  float squares[2][kConsumerWarps];          // of the branch, of the stream
  union {
    alignas(16) float sums[2][kGroupTiles<kRowSlots> * kTileRows * kRowSlots * kSumStride];
    AttentionShared attention;
    BestLogit best[kConsumers];
  };
  int32_t rows, positions[kFewRows], sequences[kFewRows];
  uint32_t turn;
};

// The ring of slots as the consumers see it, all warps alike.
struct Ring {
  Mbarrier *full, *empty;
  unsigned char* data;
  int slots;
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ int After(int count) const {
    const int at = slot + count;
    return at >= slots ? at - slots : at;
  }
  __device__ __forceinline__ void Await(int count) const {
    for (int i = 0; i < count; ++i) {
      const int at = slot + i;
      if (at >= slots) {
        MbarrierWait(&full[at - slots], parity ^ 1);
      } else {
        MbarrierWait(&full[at], parity);
      }
    }
  }
  // All lanes have used what they loaded: a slot given back right behind the loads could be filled again before they
  // are done.
  __device__ __forceinline__ void Release(int count, int lane) {
    WarpSync();
    if (lane < count) MbarrierArrive(&empty[After(lane)]);
    slot += count;
    if (slot >= slots) {
      slot -= slots;
      parity ^= 1;
    }
  }
};

// What a consumer thread carries through the step, in registers: beside the shared memory a multiprocessor has little
// first-level cache, so local memory is slow.
template <int kRowSlots>
struct Context {
  const DecodeStepArgs& args;
  Shared<kRowSlots>& shared;
  Ring ring;
  float* cells;  // this turn's set
  Patience patience;
  int sums = 0;    // which half of shared.sums comes next
  int thread = 0;  // in the block

  __device__ __forceinline__ int Warp() const { return thread / kWarpSize; }
  __device__ __forceinline__ int Lane() const { return thread % kWarpSize; }
  __device__ __forceinline__ void Sync() const { NamedBarrier(kConsumerBarrier, kConsumers); }
  __device__ __forceinline__ void At(Stage stage, int layer) {
    patience.where = static_cast<uint32_t>(stage) << 16 | static_cast<uint32_t>(layer + 1);
    // What follows from the thread's place is made anew in each part: kept for the whole step, it would not fit the
    // registers.
    thread = static_cast<int>(threadIdx.x);
    Opaque(thread);
  }
  // The cells of a row of a layer.
  __device__ __forceinline__ float* Row(const DecodeLayer& layer, int row) const {
    return cells + layer.cells.layer + int64_t{row} * layer.cells.row_cells;
  }
};

// The matrices of a layer, in the order in which both sides of the ring go through them.
enum class Matrix : uint8_t { kQkv, kO, kGateUp, kDown, kPerLayerGate, kPerLayerProjection };

__device__ __forceinline__ constexpr bool IsGated(Matrix matrix) { return matrix == Matrix::kGateUp; }

__device__ __forceinline__ Product ProductOf(const DecodeStepArgs& a, const DecodeLayer& l, Matrix matrix) {
  const DecodeAttention& kind = a.kinds[l.kind];
  const int blocks = static_cast<int>(gridDim.x);
  switch (matrix) {
    case Matrix::kQkv:
      return {l.qkv, l.qkv_rows, a.hidden};
    case Matrix::kO:
      return {l.o, a.hidden, kind.heads * kind.head_dim, PartsOf(kind.heads * kind.head_dim, blocks)};
    case Matrix::kGateUp:
      return {l.gate_up, 2 * l.ffn_width, a.hidden};
    case Matrix::kDown:
      return {l.down, a.hidden, l.ffn_width, PartsOf(l.ffn_width, blocks)};
    case Matrix::kPerLayerGate:
      return {l.per_layer_gate, a.per_layer_width, a.hidden};
    case Matrix::kPerLayerProjection:
      return {l.per_layer_projection, a.hidden, a.per_layer_width};
  }
  return {};
}

}  // namespace lapidary::gpu::decode_step
