#pragma once

#include <cstdint>

#include "kernels/gpu/attention_decode.h"
#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/head_vector.h"

// Parts of attention_decode.cu: how the context is cut, and how it comes into shared memory.
namespace lapidary::gpu::decode {

inline constexpr int kWarps = 8, kThreads = 32 * kWarps;
inline constexpr int kTileHeads = 8;
inline constexpr int kCluster = kTileHeads;   // blocks: each merges one head
inline constexpr int kClusterWindow = 1024;   // up to which a cluster takes a whole context
inline constexpr int kSegmentPositions = 64;  // at least, where there are so many
// Up to so many segments are merged at once, more of them in groups of at most kGroupSegments first.
inline constexpr int kMergeAtOnce = 16, kGroupSegments = 12, kMaxGroups = 32;
inline constexpr int kCounters = kMaxGroups + 1;  // of a tile: one for each group, one for all
// Every plan has its counters in the same place, so that none writes results where another one counts.
inline constexpr int64_t kMaxTiles = 8192;  // rows * K/V heads * tiles of heads
inline constexpr size_t kCounterBytes = sizeof(uint32_t) * kMaxTiles * kCounters;
inline constexpr int kMaxSegments = kMaxGroups * kGroupSegments;
// The ring holds the keys and values of a chunk and those of the next one at once.
inline constexpr int kLeastSlots = 4;

// What differs with the size of a head. It must not depend on anything else: it decides the order of sums.
constexpr int ChunkPositions(int head_dim) { return head_dim >= 512 ? 16 : 32; }

struct KernelArgs {
  AttentionDecodeArgs a;
  int heads, kv_heads, head_tiles;  // head_tiles: of one K/V head
  int max_rows, window, max_segments, slots;
  uint32_t* counters;  // [rows, kv_heads * head_tiles, kCounters]
  float* partials;     // [rows, kv_heads * head_tiles, max_segments] results of segments
};

// A result of a segment: values [kTileHeads, head_dim] that are still to be divided by the sum, maxima and sums
// [kTileHeads].
template <int kDim>
inline constexpr int kPartialFloats = kTileHeads * (kDim + 2);

template <int kDim, bool kBf16>
struct Traits {
  static constexpr int kChunk = ChunkPositions(kDim);
  static constexpr int kElement = kBf16 ? 2 : 4;
  // Rows are padded so that the lanes of a warp read from different banks.
  static constexpr int kRowBytes = kDim * kElement + (kBf16 ? 16 : 32);
  static constexpr int kSlotBytes = kChunk * kRowBytes;
  static constexpr int kScoreTiles = kChunk / 8;
  static constexpr int kParts = kWarps / kScoreTiles < kDim / 32 ? kWarps / kScoreTiles : kDim / 32;
  static constexpr int kPartSteps = kDim / 16 / kParts;  // products of 16 columns in a warp's part; even
  static constexpr int kScoreStride = kChunk + 8;
  static constexpr int kScores = kParts * kTileHeads * kScoreStride;  // floats of one chunk
  static constexpr int kValueTiles = kDim >= 128 ? kDim / 64 : 2;     // of 8 columns in one warp; even
  static constexpr int kQueryStride = kDim + 8;                       // of the query's terms in shared memory
};

// The step's rows in shared memory.
struct StepShared {
  int positions[kDecodeMaxRows], sequences[kDecodeMaxRows];
  int items_before[kDecodeMaxRows + 1];  // segments of all tiles of the rows before each row
};

// Shared memory besides the ring.
template <int kDim, bool kBf16>
struct Shared {
  using T = Traits<kDim, kBf16>;
  alignas(16) uint16_t query[2 * kTileHeads * T::kQueryStride];  // high terms of the heads, then low terms
  alignas(16) float query_weight[kDim];
  alignas(16) float scores[2][T::kScores];
  float merge_weight[kMaxGroups][kTileHeads];
  float merge_max[kTileHeads], merge_sum[kTileHeads];
  StepShared step;
  uint32_t is_last;
};

// A part of the context of one tile of one row.
struct Segment {
  int row, kv_head, head_tile;
  int index, count;       // of the row's segments
  int position, first;    // the row sees positions [first, position]
  int old_end;            // positions before it were written by earlier steps
  int begin, end;         // chunks
  const int32_t* blocks;  // blocks[p / kBlockPositions] holds position p
};

__device__ __forceinline__ int FirstVisible(int position, int window) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

template <int kChunk>
__device__ __forceinline__ int SegmentCount(const KernelArgs& args, int position) {
  const int chunks = position / kChunk - FirstVisible(position, args.window) / kChunk + 1;
  const int count = chunks * kChunk / kSegmentPositions;
  return count < 1 ? 1 : (count > args.max_segments ? args.max_segments : count);
}

// Fills positions and sequences; returns the number of rows. For few rows, all loads are under way at once.
__device__ __forceinline__ int LoadStep(const KernelArgs& args, StepShared* step) {
  const int rows = *args.a.rows.count, loaded = args.max_rows <= kDecodeFewRows ? args.max_rows : rows;
  for (int r = static_cast<int>(threadIdx.x); r < loaded; r += kThreads) {
    step->positions[r] = args.a.rows.positions[r];
    step->sequences[r] = args.a.rows.sequences[r];
  }
  __syncthreads();
  return rows;
}

// Fills items_before; returns how many items there are.
template <int kChunk>
__device__ __forceinline__ int CountItems(const KernelArgs& args, int rows, StepShared* step) {
  if (WarpIndex() == 0) {
    const int lane = static_cast<int>(LaneIndex()), per_lane = (rows + 31) / 32;
    const int begin = lane * per_lane, end = begin + per_lane < rows ? begin + per_lane : rows;
    int sum = 0;
    for (int r = begin; r < end; ++r) {
      sum += args.kv_heads * args.head_tiles * SegmentCount<kChunk>(args, step->positions[r]);
      step->items_before[r + 1] = sum;
    }
    int total = sum;  // of the lanes up to this one
    for (int delta = 1; delta < 32; delta *= 2) {
      const int other = WarpShuffleUp(total, delta);
      if (lane >= delta) total += other;
    }
    for (int r = begin; r < end; ++r) step->items_before[r + 1] += total - sum;
    if (lane == 0) step->items_before[0] = 0;
  }
  __syncthreads();
  return step->items_before[rows];
}

// Segment `index` of `count` of a row and tile.
template <int kChunk>
__device__ __forceinline__ Segment SegmentAt(const KernelArgs& args, const StepShared* step, int row, int tile,
                                             int index, int count) {
  Segment s;
  s.row = row;
  s.kv_head = tile / args.head_tiles;
  s.head_tile = tile % args.head_tiles;
  s.index = index;
  s.count = count;
  s.position = step->positions[row];
  s.first = FirstVisible(s.position, args.window);
  const int sequence = step->sequences[row];
  s.old_end = s.position;
  for (int r = row; r > 0 && step->sequences[r - 1] == sequence; --r) --s.old_end;
  const int chunk = s.first / kChunk, chunks = s.position / kChunk - chunk + 1;
  s.begin = chunk + index * chunks / count;
  s.end = chunk + (index + 1) * chunks / count;
  s.blocks = args.a.cache.blocks + static_cast<int64_t>(sequence) * args.a.cache.max_blocks -
             args.a.cache.first_block[sequence];
  return s;
}

template <int kChunk>
__device__ __forceinline__ Segment FindSegment(const KernelArgs& args, int rows, const StepShared* step, int item) {
  int row = 0;
  for (int end = rows; end - row > 1;) {
    const int middle = (row + end) / 2;
    if (step->items_before[middle] <= item) {
      row = middle;
    } else {
      end = middle;
    }
  }
  const int at = item - step->items_before[row], tiles = args.kv_heads * args.head_tiles;
  const int count = (step->items_before[row + 1] - step->items_before[row]) / tiles;
  return SegmentAt<kChunk>(args, step, row, at / count, at % count, count);
}

// Slots in shared memory through which the chunks of a segment pass: keys, values, keys, ... Copy i is group i of every
// thread.
template <int kDim, bool kBf16>
struct Ring {
  using T = Traits<kDim, kBf16>;

  unsigned char* slots;
  int count;
  int issued = 0, filled_slot = 0, read_slot = 0;

  // Issues copies of chunks before `end` while there is room; `released` copies were read for good.
  __device__ __forceinline__ void Fill(const KernelArgs& args, const Segment& s, int released, int end) {
    const int stop = 2 * (end - s.begin) < released + count ? 2 * (end - s.begin) : released + count;
    while (issued < stop) Issue(args, s);
  }

  // The chunks that no kernel of this step writes, while there is room.
  __device__ __forceinline__ void FillOld(const KernelArgs& args, const Segment& s) {
    const int old_chunks = s.old_end / T::kChunk;
    Fill(args, s, 0, old_chunks < s.end ? old_chunks : s.end);
  }

  __device__ __forceinline__ void Issue(const KernelArgs& args, const Segment& s) {
    constexpr int kUnits = kDim * T::kElement / 16;  // of a row
    const KvCacheView& cache = args.a.cache;
    const int base = (s.begin + issued / 2) * T::kChunk;
    const int vector = (issued % 2) * args.kv_heads + s.kv_head;
    const std::byte* rows = cache.data + s.blocks[base / kBlockPositions] * cache.block_bytes +
                            static_cast<int64_t>(vector) * kBlockPositions * kDim * T::kElement;
    unsigned char* slot = slots + filled_slot * T::kSlotBytes;
    for (int u = static_cast<int>(threadIdx.x); u < T::kChunk * kUnits; u += kThreads) {
      const int row = u / kUnits, unit = u % kUnits;
      // Rows that are not seen get the values of one that is: their weight will be 0, but 0 times rubbish may be NaN.
      int position = base + row;
      position = position < s.first ? s.first : (position > s.position ? s.position : position);
      CpAsync16(slot + row * T::kRowBytes + unit * 16,
                rows + (position % kBlockPositions) * (kDim * T::kElement) + unit * 16);
    }
    CpAsyncCommit();
    ++issued;
    filled_slot = filled_slot + 1 == count ? 0 : filled_slot + 1;
  }

  // Waits for this thread's part of the first `copies` copies.
  __device__ __forceinline__ void Wait(int copies) const {
    switch (issued - copies) {
      case 0:
        return CpAsyncWait<0>();
      case 1:
        return CpAsyncWait<1>();
      case 2:
        return CpAsyncWait<2>();
      case 3:
        return CpAsyncWait<3>();
      case 4:
        return CpAsyncWait<4>();
      case 5:
        return CpAsyncWait<5>();
      case 6:
        return CpAsyncWait<6>();
      default:
        if (issued > copies) return CpAsyncWait<7>();
        return CpAsyncWait<0>();
    }
  }

  __device__ __forceinline__ const unsigned char* Next() {
    const unsigned char* slot = slots + read_slot * T::kSlotBytes;
    read_slot = read_slot + 1 == count ? 0 : read_slot + 1;
    return slot;
  }
};

}  // namespace lapidary::gpu::decode
