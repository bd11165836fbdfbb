#pragma once

#include "kernels/gpu/decode_step.h"
#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/cells.h"
#include "kernels/gpu/device/warp.h"

// Parts of decode_step.cu: what a block is made of, and its shares of the products.
namespace lapidary::gpu::decode_step {

inline constexpr int kConsumerWarps = 8, kConsumers = kConsumerWarps * kWarpSize;
// Then a warp that loads, one that empties cells, and two that finish outputs: a group of four, which gives registers
// away.
inline constexpr int kLoaderWarp = kConsumerWarps, kEmptierWarp = kLoaderWarp + 1, kFinisherWarp = kEmptierWarp + 1;
inline constexpr int kFinishers = 2 * kWarpSize, kThreads = kFinisherWarp * kWarpSize + kFinishers;
inline constexpr int kConsumerRegisters = 224, kOtherRegisters = 56;  // of a thread; all together those of 168 for each
// Named barriers; those of the sums are two each, for the halves of shared.sums.
inline constexpr int kConsumerBarrier = 1, kEndBarrier = 2, kFinisherBarrier = 3, kSumsFull = 4, kSumsEmpty = 6;

// Weights come in slots of rows of a part of k: a half tile has up to 8 rows, in slots of 8, 4, 2 or 1.
inline constexpr int kHalfRows = 8, kTileRows = 2 * kHalfRows;
inline constexpr int kSlotBytes = 12288;
// A tile takes up to 4 slots: a phase has at most 1,536 k, of which a slot holds 4 rows.
inline constexpr int kMostSlots = 16;
// Slots under way at once. What is under way delays every hop between blocks in proportion.
inline constexpr int kSlotsInFlight = 5;
// A tile takes up to 4. With fewer than are under way the loader would wait for one that it is yet to fill.
inline constexpr int kLeastSlots = kSlotsInFlight;
// A lane takes 8 consecutive k of a row at a time: a span is 32 k of a warp.
inline constexpr int kSpan = 32, kWarpSpans = 6;
inline constexpr int kPhaseSpans = kConsumerWarps * kWarpSpans;

// For a note of where a wait took too long: stage, then layer. Products are kProducts + DecodeMatrix.
enum class Stage : uint32_t { kAttention = 1, kMerge, kProducts };
__device__ __forceinline__ constexpr Stage StageOf(DecodeMatrix matrix) {
  return static_cast<Stage>(static_cast<uint32_t>(Stage::kProducts) + static_cast<uint32_t>(matrix));
}

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

// y = x W^T for one matrix [rows, k], cut into `parts` along k, each of which some blocks compute.
struct Product {
  int32_t rows, k;
  int32_t parts = 1;
};

// What one block computes of a product. Gated products count pairs of rows, of the gate and of up.
struct Share {
  Product of;
  int part, k_begin, k_count;
  int row_begin, row_count;
  int phase_k, phases;  // of k_count, one after the other
  int slot_rows_log2;   // rows in a slot
  int halves;           // of tiles

  __device__ __forceinline__ int Tiles() const { return (halves + 1) / 2; }
  // The sums of so many tiles from `first` on are handed over at once.
  template <int kRowSlots>
  __device__ __forceinline__ int TilesOfGroup(int first) const;
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
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x) / p.parts;
  Share s;
  s.of = p;
  s.part = block / blocks;
  const bool has_part = s.part < p.parts;
  const int spans = (p.k + kSpan - 1) / kSpan, begin = spans * s.part / p.parts, end = spans * (s.part + 1) / p.parts;
  s.k_begin = begin * kSpan;
  s.k_count = (end * kSpan < p.k ? end * kSpan : p.k) - s.k_begin;
  const int units = gated ? p.rows / 2 : p.rows, at = block - s.part * blocks, each = units / blocks;
  const int longer = units - each * blocks;  // so many of the first blocks have a row more
  s.row_begin = each * at + (at < longer ? at : longer);
  s.row_count = has_part ? each + (at < longer ? 1 : 0) : 0;
  s.phases = (end - begin + kPhaseSpans - 1) / kPhaseSpans;
  if (s.phases < 1) s.phases = 1;
  s.phase_k = (end - begin + s.phases - 1) / s.phases * kSpan;
  s.slot_rows_log2 = 3;
  while (s.slot_rows_log2 > 0 && (s.phase_k * 2 << s.slot_rows_log2) > kSlotBytes) --s.slot_rows_log2;
  const int tiles = (s.row_count + kHalfRows - 1) / kHalfRows;
  s.halves = gated ? 2 * tiles : tiles;
  return s;
}

// A float32 is the sum of so many bfloat16 terms.
inline constexpr int kTerms = 3;

// Tiles whose sums are handed over at once.
template <int kRowSlots>
inline constexpr int kGroupTiles = kRowSlots == 1 ? 2 : 1;
template <int kRowSlots>
__device__ __forceinline__ int Share::TilesOfGroup(int first) const {
  const int left = Tiles() - first;
  return left < kGroupTiles<kRowSlots> ? left : kGroupTiles<kRowSlots>;
}
// Floats between the sums of the warps for one output and the next.
inline constexpr int kSumStride = kConsumerWarps + 1;

inline constexpr int kMaxHeadDim = 512;
// Positions that are attended to at once: a warp two of them.
inline constexpr int kChunkPositions = 2 * kConsumerWarps;

struct AttentionShared {
  alignas(16) float query[kDecodeTileHeads][kMaxHeadDim];
  alignas(16) float scores[2][kChunkPositions][kDecodeTileHeads];                // of a chunk and of the next
  alignas(16) float weights[kConsumerWarps][kChunkPositions][kDecodeTileHeads];  // each warp's own
};

// kRowSlots: 1, or kFewRows for 2 to 8 rows.
template <int kRowSlots>
struct ProductShared {
  // Weights of norms: of the branch that joins the stream, then of the stream.
  alignas(16) float branch_norm[kDecodeStepWidth];
  alignas(16) float norm[kDecodeStepWidth];
};
template <>
struct ProductShared<1> {
  // The terms of the input, eight values at a place, padded so that the terms of four places meet all banks once.
  uint4 terms[kTerms][kDecodeStepWidth / 8 + 4];
};

template <int kRowSlots>
struct Shared {
  Mbarrier full[kMostSlots], empty[kMostSlots];
  // Many rows: the residual stream, padded so that 16-byte reads of two rows meet all banks once. One row is in the
  // registers of its threads.
  alignas(16) float hidden[kRowSlots == 1 ? 1 : kRowSlots][kRowSlots == 1 ? 4 : kDecodeStepWidth + 4];
  union {  // between attention and the products before and after it is a barrier
    ProductShared<kRowSlots> product;
    AttentionShared attention;
  };
  DecodeLayer layer[2], loader_layer[2];  // copies of layers l in [l % 2], for the consumers, for the loader
  Share shares[kDecodeMostShapes * kDecodeLayerMatrices + 1];  // of the matrices of each shape, then of the head
  // Of the branch, of the stream: of each place of the only row, or of each row.
  float squares[2][kRowSlots == 1 ? kConsumers : kRowSlots];
  alignas(16) float sums[2][kGroupTiles<kRowSlots> * kTileRows * kRowSlots * kSumStride];
  BestLogit best[kFinishers];
  int32_t positions[kFewRows], sequences[kFewRows];
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
  // A lane waits for each slot.
  __device__ __forceinline__ void Await(int count, int lane) const {
    if (lane < count) MbarrierWait(&full[After(lane)], slot + lane >= slots ? parity ^ 1 : parity);
    WarpSync();
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

// What a thread that consumes or finishes carries through the step, in registers: beside the shared memory a
// multiprocessor has little first-level cache, so local memory is slow.
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
  __device__ __forceinline__ void Mark(int layer, int mark) const {
    if (args.marks == nullptr || thread != 0) return;
    args.marks[(int64_t{blockIdx.x} * (args.layers + 1) + layer) * kDecodeMarks + mark] = Nanoseconds();
  }
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

__device__ __forceinline__ constexpr bool IsGated(DecodeMatrix matrix) { return matrix == DecodeMatrix::kGateUp; }
// Whether its input is the residual stream, not what other blocks published; its result then does not join the stream.
__device__ __forceinline__ constexpr bool TakesStream(DecodeMatrix matrix) {
  return matrix == DecodeMatrix::kQkv || matrix == DecodeMatrix::kGateUp || matrix == DecodeMatrix::kPerLayerGate ||
         matrix == DecodeMatrix::kHead;
}

__device__ __forceinline__ Product ProductOf(const DecodeStepArgs& a, const DecodeShape& shape, DecodeMatrix matrix) {
  const int heads_width = a.kinds[shape.kind].heads * a.kinds[shape.kind].head_dim;
  const int blocks = static_cast<int>(gridDim.x);
  switch (matrix) {
    case DecodeMatrix::kQkv:
      return {shape.qkv_rows, a.hidden};
    case DecodeMatrix::kO:
      return {a.hidden, heads_width, PartsOf(heads_width, blocks)};
    case DecodeMatrix::kGateUp:
      return {2 * shape.ffn_width, a.hidden};
    case DecodeMatrix::kDown:
      return {a.hidden, shape.ffn_width, PartsOf(shape.ffn_width, blocks)};
    case DecodeMatrix::kPerLayerGate:
      return {a.per_layer_width, a.hidden};
    case DecodeMatrix::kPerLayerProjection:
      return {a.hidden, a.per_layer_width};
    case DecodeMatrix::kHead:
      return {a.vocab, a.hidden};
  }
  return {};
}

// Makes `shares`, a thread each.
__device__ __forceinline__ void MakeShares(const DecodeStepArgs& a, Share* shares) {
  const int count = a.shapes * kDecodeLayerMatrices, i = static_cast<int>(threadIdx.x);
  if (i > count) return;
  const auto matrix = i == count ? DecodeMatrix::kHead : static_cast<DecodeMatrix>(i % kDecodeLayerMatrices);
  shares[i == count ? kDecodeMostShapes * kDecodeLayerMatrices : i] =
      ShareOf(ProductOf(a, a.shape[i == count ? 0 : i / kDecodeLayerMatrices], matrix), IsGated(matrix));
}
__device__ __forceinline__ const Share& ShareOf(const Share* shares, int shape, DecodeMatrix matrix) {
  return shares[matrix == DecodeMatrix::kHead ? kDecodeMostShapes * kDecodeLayerMatrices
                                              : shape * kDecodeLayerMatrices + static_cast<int>(matrix)];
}

// Goes through the products of a step in the order that both sides of the ring keep: visit(l, matrix), where the head
// is of the layer behind the last. `visit` is there once in the program, not once for each product: what runs once a
// layer comes from the instruction cache, and that is small.
template <typename Begin, typename Visit>
__device__ __forceinline__ void ForEachProduct(const DecodeStepArgs& a, const Begin& begin_layer, const Visit& visit) {
#pragma unroll 1
  for (int l = 0; l <= a.layers; ++l) {
    begin_layer(l);
    const bool is_head = l == a.layers;
    const auto last = is_head ? DecodeMatrix::kHead
                              : (a.per_layer_width > 0 ? DecodeMatrix::kPerLayerProjection : DecodeMatrix::kDown);
#pragma unroll 1
    for (auto m = is_head ? DecodeMatrix::kHead : DecodeMatrix::kQkv; m <= last;
         m = static_cast<DecodeMatrix>(static_cast<int>(m) + 1))
      visit(l, m);
  }
}

// Sends for a copy of layer `l` (none: nothing), by `threads` threads, of which this is `thread`. They wait with
// CpAsyncWait<0>.
__device__ __forceinline__ void FetchLayer(const DecodeStepArgs& a, int l, DecodeLayer (&copies)[2], int thread,
                                           int threads) {
  static_assert(sizeof(DecodeLayer) % 16 == 0);
  if (l >= a.layers) return;
  const auto* from = reinterpret_cast<const unsigned char*>(&a.layer[l]);
  auto* to = reinterpret_cast<unsigned char*>(&copies[l % 2]);
#pragma unroll 1
  for (int i = thread * 16; i < static_cast<int>(sizeof(DecodeLayer)); i += threads * 16) CpAsync16(to + i, from + i);
  CpAsyncCommit();
}

}  // namespace lapidary::gpu::decode_step
