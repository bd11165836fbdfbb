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
inline constexpr int kSegmentPositions = 64;  // at least, where there are so many
// Up to so many segments are merged at once, more of them in groups of at most kGroupSegments first.
inline constexpr int kMergeAtOnce = 16, kGroupSegments = 12, kMaxGroups = 32;
inline constexpr int kCounters = kMaxGroups + 1;  // of a tile: one for each group, one for all
// Every plan has its counters in the same place, so that none writes results where another one counts.
inline constexpr int64_t kMaxTiles = 8192;  // rows * K/V heads * tiles of heads
inline constexpr size_t kCounterBytes = sizeof(uint32_t) * kMaxTiles * kCounters;
inline constexpr int kMaxSegments = kMaxGroups * kGroupSegments;
// The ring holds the keys and values of a chunk and those of the next one at once.
inline constexpr int64_t kLeastSlots = 4, kMostSlots = 8;
inline constexpr int64_t kReservedShared = 1024;  // of a multiprocessor, for each block

// What differs with the size of a head. It must not depend on anything else: it decides the order of sums.
constexpr int ChunkPositions(int head_dim) { return head_dim >= 512 ? 16 : 32; }

struct KernelArgs {
  AttentionDecodeArgs a;
  int heads, kv_heads, head_tiles;  // head_tiles: of one K/V head
  int window, max_rows, max_segments, slots;
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
  static constexpr int kSteps = kChunk / 16;                          // products of 16 positions
  static constexpr int kQueryStride = kDim + 8;                       // of the query's terms in shared memory
};

// A part of the context of one tile of one row.
struct Segment {
  int row, kv_head, head_tile;
  int index, count;       // of the row's segments
  int position, first;    // the row sees positions [first, position]
  int old_end;            // positions before it were written by earlier steps
  int begin, end;         // chunks
  const int32_t* blocks;  // blocks[p / kBlockPositions] holds position p
  int32_t last_block;     // that of the last chunk, which may have to wait for earlier kernels
};

// Terms of the query and of the softmax weights: all 24 bits of a float.
inline constexpr int kTerms = 3;

// Shared memory before the ring; items_before [max_rows + 1] comes after it.
template <int kDim, bool kBf16>
struct Shared {
  using T = Traits<kDim, kBf16>;
  alignas(16) uint16_t query[kTerms * kTileHeads * T::kQueryStride];  // first terms of the heads, then second ...
  alignas(16) float scores[2][T::kScores];
  float merge_weight[kMaxGroups][kTileHeads];
  float merge_max[kTileHeads], merge_sum[kTileHeads];
  Segment segment;
  uint32_t is_last;
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

// Which part of a step a block takes next: part `at` of the `parts` of a row, the segments of each tile in turn.
struct RowPart {
  int row, position, sequence;
  int earlier;  // rows of the same sequence right before it
  int at, parts;
};

template <int kChunk>
__device__ __forceinline__ int PartCount(const KernelArgs& args, int position) {
  return args.kv_heads * args.head_tiles * SegmentCount<kChunk>(args, position);
}

// Part `item` of a step of few rows, if there is one: a row a lane, so that nothing is read one after the other and
// warps need not meet.
template <int kChunk>
__device__ __forceinline__ bool FindOfFew(const KernelArgs& args, int item, RowPart& part) {
  const int lane = static_cast<int>(LaneIndex());
  int position = 0, sequence = 0;
  if (lane < args.max_rows) {
    position = args.a.rows.positions[lane];
    sequence = args.a.rows.sequences[lane];
  }
  const int rows = *args.a.rows.count, parts = lane < rows ? PartCount<kChunk>(args, position) : 0;
  int end = parts;  // of the rows up to this one
#pragma unroll
  for (int delta = 1; delta < kDecodeFewRows; delta *= 2) {
    const int other = WarpShuffleUp(end, delta);
    if (lane >= delta) end += other;
  }
  part.row = CountBits(Ballot(lane < rows && end <= item));
  part.position = WarpShuffle(position, part.row);
  part.sequence = WarpShuffle(sequence, part.row);
  part.earlier = CountBits(Ballot(lane < part.row && sequence == part.sequence));
  part.parts = WarpShuffle(parts, part.row);
  part.at = item - WarpShuffle(end, part.row) + part.parts;
  return part.row < rows;
}

// Fills items_before [rows + 1], the parts of the rows before each.
template <int kChunk>
__device__ __forceinline__ void CountItems(const KernelArgs& args, int* items_before) {
  const int rows = *args.a.rows.count;
  if (WarpIndex() == 0) {
    const int lane = static_cast<int>(LaneIndex()), per_lane = (rows + 31) / 32;
    const int begin = lane * per_lane, end = begin + per_lane < rows ? begin + per_lane : rows;
    int sum = 0;
    for (int r = begin; r < end; ++r) {
      sum += PartCount<kChunk>(args, args.a.rows.positions[r]);
      items_before[r + 1] = sum;
    }
    int total = sum;  // of the lanes up to this one
    for (int delta = 1; delta < 32; delta *= 2) {
      const int other = WarpShuffleUp(total, delta);
      if (lane >= delta) total += other;
    }
    for (int r = begin; r < end; ++r) items_before[r + 1] += total - sum;
    if (lane == 0) items_before[0] = 0;
  }
  __syncthreads();
}

// The same of a step of any number of rows.
__device__ __forceinline__ bool FindOfMany(const KernelArgs& args, const int* items_before, int item, RowPart& part) {
  const int rows = *args.a.rows.count;
  if (item >= items_before[rows]) return false;
  int row = 0;
  for (int end = rows; end - row > 1;) {
    const int middle = (row + end) / 2;
    if (items_before[middle] <= item) {
      row = middle;
    } else {
      end = middle;
    }
  }
  const int32_t* sequences = args.a.rows.sequences;
  part = {row, args.a.rows.positions[row], sequences[row],
          0,   item - items_before[row],   items_before[row + 1] - items_before[row]};
  while (row > part.earlier && sequences[row - part.earlier - 1] == part.sequence) ++part.earlier;
  return true;
}

template <int kChunk>
__device__ __forceinline__ bool FindPart(const KernelArgs& args, const int* items_before, int item, RowPart& part) {
  return args.max_rows <= kDecodeFewRows ? FindOfFew<kChunk>(args, item, part)
                                         : FindOfMany(args, items_before, item, part);
}

template <int kChunk>
__device__ __forceinline__ Segment SegmentOf(const KernelArgs& args, const RowPart& part) {
  Segment s;
  s.row = part.row;
  s.count = part.parts / (args.kv_heads * args.head_tiles);
  s.index = part.at % s.count;
  const int tile = part.at / s.count;
  s.kv_head = tile / args.head_tiles;
  s.head_tile = tile % args.head_tiles;
  s.position = part.position;
  s.first = FirstVisible(s.position, args.window);
  s.old_end = s.position - part.earlier;
  const int chunk = s.first / kChunk, chunks = s.position / kChunk - chunk + 1;
  s.begin = chunk + s.index * chunks / s.count;
  s.end = chunk + (s.index + 1) * chunks / s.count;
  s.blocks =
      args.a.cache.blocks + int64_t{part.sequence} * args.a.cache.max_blocks - args.a.cache.first_block[part.sequence];
  s.last_block = s.blocks[(s.end - 1) * kChunk / kBlockPositions];
  return s;
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

  __device__ __forceinline__ void Issue(const KernelArgs& args, const Segment& s) {
    constexpr int kUnits = kDim * T::kElement / 16;  // of a row
    const KvCacheView& cache = args.a.cache;
    const int chunk = s.begin + issued / 2, base = chunk * T::kChunk;
    const int vector = (issued % 2) * args.kv_heads + s.kv_head;
    const int32_t block = chunk + 1 == s.end ? s.last_block : s.blocks[base / kBlockPositions];
    const std::byte* rows =
        cache.data + block * cache.block_bytes + static_cast<int64_t>(vector) * kBlockPositions * kDim * T::kElement;
    unsigned char* slot = slots + filled_slot * T::kSlotBytes;
#pragma unroll 1
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
