#pragma once

#include <cmath>

#include "kernels/gpu/decode_step_block.h"
#include "kernels/gpu/device/bf16.h"

// Parts of decode_step.cu: attention in float32. A row's visible positions are cut into segments; a block takes up to
// kDecodeTileHeads query heads of one K/V head over one segment, kChunkPositions at a time: scores (a warp two
// positions, 16 lanes each), weights (each warp all of them), then values (a thread four columns of all heads and a
// part of the positions). Then the segments of each four columns are merged by one warp.
namespace lapidary::gpu::decode_step {

// What a block attends to.
struct Segment {
  int row, kv_head, tile, index;
  int head, heads;        // the first, and how many
  int begin, end;         // positions
  int old_end;            // positions before it were written by earlier steps
  const int32_t* blocks;  // blocks[p / kBlockPositions] holds position p
};

// The pairs (j, j + head_dim / 2) of a head's vector, in one warp: four from j = 4 (lane + 32 i) on.
struct HeadPairs {
  static constexpr int kCount = kMaxHeadDim / 2 / 4 / kWarpSize;
  float low[kCount][4] = {}, high[kCount][4] = {};

  __device__ __forceinline__ static int First(int i, int lane) { return 4 * (lane + i * kWarpSize); }

  __device__ __forceinline__ void Await(const float* cells, int half, int lane, Patience& patience) {
    const float* from[2 * kCount];
    bool wanted[2 * kCount];
    Cells4 values[2 * kCount];
#pragma unroll
    for (int i = 0; i < 2 * kCount; ++i) {
      from[i] = cells + First(i / 2, lane) + i % 2 * half;
      wanted[i] = First(i / 2, lane) < half;
    }
    AwaitCells4(from, wanted, patience, values);
    WarpSync();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        low[i][j] = __uint_as_float(values[2 * i].v[j]);
        high[i][j] = __uint_as_float(values[2 * i + 1].v[j]);
      }
    }
  }

  __device__ __forceinline__ void Norm(int half, float eps) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) squares += low[i][j] * low[i][j] + high[i][j] * high[i][j];
    }
    const float scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(2 * half) + eps);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) low[i][j] *= scale, high[i][j] *= scale;
    }
  }

  // What the pairs are multiplied with, and the row's angles.
  struct Turn {
    float4 low[kCount], high[kCount], cos[kCount], sin[kCount];

    __device__ __forceinline__ void Load(int half, const float* weight, const RopeTableView& rope, int row, int lane) {
      const float *cos_row = rope.cos + int64_t{row} * rope.pairs, *sin_row = rope.sin + int64_t{row} * rope.pairs;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int j = First(i, lane);
        low[i] = high[i] = sin[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        cos[i] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        if (j < half) {
          low[i] = *reinterpret_cast<const float4*>(weight + j);
          high[i] = *reinterpret_cast<const float4*>(weight + j + half);
        }
        if (j < rope.pairs) {
          cos[i] = *reinterpret_cast<const float4*>(cos_row + j);
          sin[i] = *reinterpret_cast<const float4*>(sin_row + j);
        }
      }
    }
  };

  __device__ __forceinline__ void WeighAndRotate(const Turn& turn) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float4 &l = turn.low[i], &h = turn.high[i], &c = turn.cos[i], &s = turn.sin[i];
      const float by_low[4] = {l.x, l.y, l.z, l.w}, by_high[4] = {h.x, h.y, h.z, h.w};
      const float cos[4] = {c.x, c.y, c.z, c.w}, sin[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float a = low[i][j] * by_low[j], b = high[i][j] * by_high[j];
        low[i][j] = a * cos[j] - b * sin[j];
        high[i][j] = b * cos[j] + a * sin[j];
      }
    }
  }

  // store(j, four values from j on).
  template <typename Store>
  __device__ __forceinline__ void ForEach(int half, int lane, const Store& store) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int j = First(i, lane);
      if (j >= half) break;
      store(j, make_float4(low[i][0], low[i][1], low[i][2], low[i][3]));
      store(j + half, make_float4(high[i][0], high[i][1], high[i][2], high[i][3]));
    }
  }
};

// Four values of the cache, not by way of the first-level cache: other blocks write it.
template <bool kBf16>
__device__ __forceinline__ float4 LoadCached4(const std::byte* vector, int element) {
  if constexpr (kBf16) {
    const auto* at = reinterpret_cast<const float*>(vector) + element / 2;
    const uint2 bits = LoadCells2(at);
    return make_float4(LowBf16(bits.x), HighBf16(bits.x), LowBf16(bits.y), HighBf16(bits.y));
  } else {
    return LoadCells4(reinterpret_cast<const float*>(vector) + element).Values();
  }
}

template <bool kBf16>
__device__ __forceinline__ void StoreCached4(std::byte* vector, int element, const float4& value) {
  if constexpr (kBf16) {
    reinterpret_cast<uint2*>(vector)[element / 4] = make_uint2(PackBf16(value.x, value.y), PackBf16(value.z, value.w));
  } else {
    reinterpret_cast<float4*>(vector)[element / 4] = value;
  }
}

template <int kRowSlots, bool kBf16>
struct Attention {
  Context<kRowSlots>& c;
  const DecodeLayer& layer;
  const DecodeAttention& kind;
  int layer_index;
  Segment s{};

  __device__ __forceinline__ Attention(Context<kRowSlots>& context, const DecodeLayer& l, int index)
      : c(context), layer(l), kind(context.args.kinds[l.kind]), layer_index(index) {}

  __device__ __forceinline__ int PartialFloats() const { return kDecodeTileHeads * (kind.head_dim + 2); }
  // The result of a segment: values [kDecodeTileHeads, head_dim] still to be divided by the sum, maxima and sums.
  __device__ __forceinline__ float* Partial(int row, int segment, int tile_of_all) const {
    const int64_t index = int64_t{segment} * kind.kv_heads * kind.tiles + tile_of_all;
    return c.Row(layer, row) + layer.cells.partials + index * PartialFloats();
  }
  __device__ __forceinline__ int SegmentsOf(int row) const {
    return SegmentsAt(c.shared.positions[row], kind.window, kind.max_segments);
  }
  // Where the keys of a chunk lie, from position `base` on: of one block of the cache, and from `split` on of the next.
  struct Chunk {
    const std::byte *first, *second;
    int split, row_bytes;

    __device__ __forceinline__ const std::byte* At(int i) const { return (i < split ? first : second) + i * row_bytes; }
  };
  __device__ __forceinline__ Chunk ChunkAt(int base, int count) const {
    const int row_bytes = kind.head_dim * (kBf16 ? 2 : 4), in_block = base % kBlockPositions;
    const int split = kBlockPositions - in_block;
    const std::byte* first = Cached(0, base);
    const std::byte* second = split < count ? Cached(0, base + split) - split * row_bytes : first;
    return {first, second, split, row_bytes};
  }
  // From a key to the value of its position.
  __device__ __forceinline__ int64_t ValueOffset() const {
    return int64_t{kind.kv_heads} * kBlockPositions * kind.head_dim * (kBf16 ? 2 : 4);
  }
  // Key (0) or value (1) of a position.
  __device__ __forceinline__ std::byte* Cached(int which, int position) const {
    const int64_t vector = int64_t{which} * kind.kv_heads + s.kv_head;
    const int64_t element = (vector * kBlockPositions + position % kBlockPositions) * kind.head_dim;
    return layer.kv + s.blocks[position / kBlockPositions] * kind.cache.block_bytes + element * (kBf16 ? 2 : 4);
  }

  // All segments of the block, then what it merges.
  __device__ __forceinline__ void Run() {
    c.At(Stage::kAttention, layer_index);
    int begin = 0;  // of the row's segments and tiles among all
    c.Sync();       // shared memory was the products'
#pragma unroll 1
    for (int row = 0; row < c.args.rows; ++row) {
      const int tiles = kind.kv_heads * kind.tiles, count = SegmentsOf(row) * tiles,
                blocks = static_cast<int>(gridDim.x);
      int item = (static_cast<int>(blockIdx.x) - begin % blocks + blocks) % blocks;
#pragma unroll 1
      for (; item < count; item += blocks) {
        Find(row, item / tiles, item % tiles);
        Attend();
      }
      begin += count;
    }
    c.Mark(layer_index, kDecodeAttentionMarks + 1);
    c.At(Stage::kMerge, layer_index);
    Merge();
    c.Mark(layer_index, kDecodeAttentionMarks + 2);
  }

  __device__ __forceinline__ void Find(int row, int index, int tile_of_all) {
    const int position = c.shared.positions[row], sequence = c.shared.sequences[row];
    const int first = kind.window == 0 || position < kind.window ? 0 : position - kind.window + 1;
    const auto seen = static_cast<uint32_t>(position - first + 1);
    const auto count = static_cast<uint32_t>(SegmentsOf(row)), at = static_cast<uint32_t>(index);
    s.row = row;
    s.index = index;
    s.kv_head = tile_of_all / kind.tiles;
    s.tile = tile_of_all % kind.tiles;
    s.head = s.kv_head * kind.group + s.tile * kDecodeTileHeads;
    s.heads = kind.group - s.tile * kDecodeTileHeads;
    if (s.heads > kDecodeTileHeads) s.heads = kDecodeTileHeads;
    s.begin = first + static_cast<int>(seen * at / count);
    s.end = first + static_cast<int>(seen * (at + 1) / count);
    int earlier = 0;  // rows of the sequence right before this one
    while (earlier < row && c.shared.sequences[row - earlier - 1] == sequence) ++earlier;
    s.old_end = layer.writes_kv ? position - earlier : position + 1;
    s.blocks = kind.cache.blocks + int64_t{sequence} * kind.cache.max_blocks - kind.cache.first_block[sequence];
  }

  static constexpr int kLineBytes = 128;                                          // of the second-level cache
  static constexpr int kKeyLanes = kWarpSize * kConsumerWarps / kChunkPositions;  // of a position
  static constexpr int kKeyStep = kKeyLanes * 4;
  static constexpr int kKeyLoads = kMaxHeadDim / kKeyStep;  // of four values, a lane

  // The lane's part of the key of its position of a chunk of `count`: four values of every kKeyStep.
  __device__ __forceinline__ void LoadKey(const Chunk& chunk, int count, float4 (&key)[kKeyLoads]) const {
    const int at = c.thread / kKeyLanes, first = c.Lane() % kKeyLanes * 4;
    const std::byte* vector = chunk.At(at);
#pragma unroll
    for (int j = 0; j < kKeyLoads; ++j) {
      key[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (at < count && j * kKeyStep + first < kind.head_dim) key[j] = LoadCached4<kBf16>(vector, j * kKeyStep + first);
    }
  }

  // The query heads to shared memory, then the keys and values of the step's own positions to the cache, a warp each.
  // Several blocks may write the same values there.
  __device__ __forceinline__ void PrepareVectors() {
    const int half = kind.head_dim / 2, from = s.begin > s.old_end ? s.begin : s.old_end;
    const int vectors = kDecodeTileHeads + 2 * (s.end > from ? s.end - from : 0);
#pragma unroll 1
    for (int i = c.Warp(); i < vectors; i += kConsumerWarps) {
      const bool is_query = i < kDecodeTileHeads;
      const int own = i - kDecodeTileHeads, position = from + own / 2, which = own % 2;  // of a key or value
      const int row = is_query ? s.row : s.row - (c.shared.positions[s.row] - position);
      int vector = s.head + i;
      if (!is_query) vector = kind.heads + (which == 1 && !layer.v_is_k ? kind.kv_heads : 0) + s.kv_head;
      HeadPairs x{};
      if (!is_query || i < s.heads) {
        HeadPairs::Turn turn;
        turn.Load(half, is_query ? layer.q_norm : layer.k_norm, kind.rope, row, c.Lane());
        x.Await(c.Row(layer, row) + layer.cells.outputs[static_cast<int>(DecodeMatrix::kQkv)] + vector * kind.head_dim,
                half, c.Lane(), c.patience);
        x.Norm(half, c.args.eps);
        if (is_query || which == 0) x.WeighAndRotate(turn);
      }
      if (is_query) {
        float* query = c.shared.attention.query[i];
        x.ForEach(half, c.Lane(), [&](int j, const float4& four) { *reinterpret_cast<float4*>(&query[j]) = four; });
      } else {
        std::byte* to = Cached(which, position);
        x.ForEach(half, c.Lane(), [&](int j, const float4& four) { StoreCached4<kBf16>(to, j, four); });
      }
    }
  }

  // Scores of the lane's position of a chunk of `count` with all heads.
  __device__ __forceinline__ void Score(const float4 (&key)[kKeyLoads], int count,
                                        float (*scores)[kDecodeTileHeads]) const {
    const int part = c.Lane() % kKeyLanes, at = c.thread / kKeyLanes;
    float sum[kDecodeTileHeads] = {};
#pragma unroll
    for (int j = 0; j < kKeyLoads; ++j) {
      const int element = j * kKeyStep + part * 4;
      if (j * kKeyStep >= kind.head_dim) break;
      if (element >= kind.head_dim) continue;
#pragma unroll
      for (int h = 0; h < kDecodeTileHeads; ++h) {
        const float4 q = *reinterpret_cast<const float4*>(&c.shared.attention.query[h][element]);
        sum[h] = __fmaf_rn(q.w, key[j].w,
                           __fmaf_rn(q.z, key[j].z, __fmaf_rn(q.y, key[j].y, __fmaf_rn(q.x, key[j].x, sum[h]))));
      }
    }
    // Each step halves the heads that a lane adds up: lane `part` ends with head part / 2.
    static_assert(kKeyLanes == 2 * kDecodeTileHeads);
#pragma unroll
    for (int heads = kDecodeTileHeads / 2; heads > 0; heads /= 2) {
      const bool upper = (part & 2 * heads) != 0;
#pragma unroll
      for (int h = 0; h < heads; ++h) {
        const float keep = upper ? sum[h + heads] : sum[h], give = upper ? sum[h] : sum[h + heads];
        sum[h] = keep + WarpShuffleXor(give, 2 * heads);
      }
    }
    sum[0] += WarpShuffleXor(sum[0], 1);
    if (at < count && part % 2 == 0) scores[at][part / 2] = sum[0];
  }

  // What a thread adds up of the values: four columns of all heads, lanes of a warp differing in the column first.
  struct ValuePlace {
    int column;
    int part, parts;  // positions part, part + parts, ...

    __device__ __forceinline__ ValuePlace(int head_dim, int thread) {
      parts = kConsumers / (head_dim / 4);
      const int per_warp = kWarpSize / parts, lane = thread % kWarpSize;
      column = (thread / kWarpSize * per_warp + lane % per_warp) * 4;
      part = lane / per_warp;
    }
  };
  static constexpr int kValueLoads = kChunkPositions / (kConsumers / (kMaxHeadDim / 4));  // at most

  // The thread's values of a chunk of `count`.
  __device__ __forceinline__ void LoadValues(const ValuePlace& place, const Chunk& chunk, int count,
                                             float4 (&value)[kValueLoads]) const {
    const int64_t offset = ValueOffset();
#pragma unroll
    for (int i = 0; i < kValueLoads; ++i) {
      const int at = place.part + i * place.parts;
      value[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (at < count) value[i] = LoadCached4<kBf16>(chunk.At(at) + offset, place.column);
    }
  }

  // Adds the weighted values of a chunk.
  __device__ __forceinline__ void AddValues(const ValuePlace& place, int count,
                                            const float (*weights)[kDecodeTileHeads],
                                            const float4 (&value)[kValueLoads], float4 (&sum)[kDecodeTileHeads]) const {
#pragma unroll
    for (int i = 0; i < kValueLoads; ++i) {
      const int at = place.part + i * place.parts;
      if (at >= count) break;
#pragma unroll
      for (int h = 0; h < kDecodeTileHeads; h += 4) {
        const float4 w = *reinterpret_cast<const float4*>(&weights[at][h]);
        const float each[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float4& to = sum[h + j];
          to.x = __fmaf_rn(each[j], value[i].x, to.x), to.y = __fmaf_rn(each[j], value[i].y, to.y);
          to.z = __fmaf_rn(each[j], value[i].z, to.z), to.w = __fmaf_rn(each[j], value[i].w, to.w);
        }
      }
    }
  }

  // The softmax so far, of head lane % 8, the same in every warp.
  struct Softmax {
    float top = -INFINITY, total = 0.0f;

    // Takes the scores of a chunk, writes their weights for the warp; by how much what was added before shrinks.
    __device__ __forceinline__ float Take(const float (*scores)[kDecodeTileHeads], int count, int lane,
                                          float (*weights)[kDecodeTileHeads]) {
      constexpr int kLanesOfHead = kWarpSize / kDecodeTileHeads, kEach = kChunkPositions / kLanesOfHead;
      const int head = lane % kDecodeTileHeads, first = lane / kDecodeTileHeads;
      const float before = top;
      float each[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int at = first + i * kLanesOfHead;
        each[i] = at < count ? scores[at][head] : -INFINITY;
        top = fmaxf(top, each[i]);
      }
      top = fmaxf(top, WarpShuffleXor(top, 8));
      top = fmaxf(top, WarpShuffleXor(top, 16));
      float added = 0.0f;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float weight = expf(each[i] - top);
        weights[first + i * kLanesOfHead][head] = weight;
        added += weight;
      }
      added += WarpShuffleXor(added, 8);
      added += WarpShuffleXor(added, 16);
      const float decay = expf(before - top);  // 0 at first
      total = total * decay + added;
      WarpSync();
      return decay;
    }
  };

  // The segment's softmax-weighted values, published for the merge.
  __device__ __forceinline__ void Attend() {
    PrepareVectors();
    c.Sync();
    c.Mark(layer_index, kDecodeAttentionMarks);
    const ValuePlace place(kind.head_dim, c.thread);
    float(*weights)[kDecodeTileHeads] = c.shared.attention.weights[c.Warp()];
    float4 sum[kDecodeTileHeads] = {};
    Softmax softmax;
#pragma unroll 1
    for (int base = s.begin, chunk = 0; base < s.end; base += kChunkPositions, chunk ^= 1) {
      const int count = s.end - base < kChunkPositions ? s.end - base : kChunkPositions;
      const Chunk cached = ChunkAt(base, count);
      float4 key[kKeyLoads], value[kValueLoads];
      LoadKey(cached, count, key);
      LoadValues(place, cached, count, value);
      Score(key, count, c.shared.attention.scores[chunk]);
      c.Sync();
      const float decay = softmax.Take(c.shared.attention.scores[chunk], count, c.Lane(), weights);
      if (base > s.begin) {
#pragma unroll
        for (int h = 0; h < kDecodeTileHeads; ++h) {
          const float by = WarpShuffle(decay, h);
          sum[h].x *= by, sum[h].y *= by, sum[h].z *= by, sum[h].w *= by;
        }
      }
      AddValues(place, count, weights, value, sum);
    }
    PublishSegment(place, sum, softmax.top, softmax.total);
    c.Sync();  // what is in shared memory is needed no more
  }

  __device__ __forceinline__ void PublishSegment(const ValuePlace& place, float4 (&sum)[kDecodeTileHeads], float top,
                                                 float total) const {
#pragma unroll 1
    for (int mask = kWarpSize / place.parts; mask < kWarpSize; mask *= 2) {
#pragma unroll
      for (float4& four : sum) {
        four.x += WarpShuffleXor(four.x, mask), four.y += WarpShuffleXor(four.y, mask);
        four.z += WarpShuffleXor(four.z, mask), four.w += WarpShuffleXor(four.w, mask);
      }
    }
    float* partial = Partial(s.row, s.index, s.kv_head * kind.tiles + s.tile);
#pragma unroll
    for (int h = 0; h < kDecodeTileHeads; ++h) {
      if (h % place.parts == place.part) Publish4(partial + h * kind.head_dim + place.column, sum[h]);
    }
    if (c.thread >= kDecodeTileHeads) return;
    Publish(partial + kDecodeTileHeads * kind.head_dim + c.thread, top);
    Publish(partial + kDecodeTileHeads * (kind.head_dim + 1) + c.thread, total);
  }

  // Four columns of one head over all segments of a row: each lane every 32nd segment.
  __device__ __forceinline__ void MergeColumns(int row, int head, int column) const {
    const int kv_head = head / kind.group, in_group = head - kv_head * kind.group;
    const int of_all = kv_head * kind.tiles + in_group / kDecodeTileHeads, h = in_group % kDecodeTileHeads;
    const int count = SegmentsOf(row);
    float top = -INFINITY, total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (int segment = c.Lane(); segment < count; segment += kWarpSize) {
      const float* partial = Partial(row, segment, of_all);
      const float* ends = partial + kDecodeTileHeads * kind.head_dim + h;
      Cells4 value = LoadCells4(partial + h * kind.head_dim + column);
      uint32_t most = LoadCell(ends), all = LoadCell(ends + kDecodeTileHeads);
      auto wait = c.patience.Begin();
      while ((value.HasEmpty() || most == kEmptyCell || all == kEmptyCell) && wait.Lasts()) {
        if (value.HasEmpty()) value = LoadCells4(partial + h * kind.head_dim + column);
        if (most == kEmptyCell) most = LoadCell(ends);
        if (all == kEmptyCell) all = LoadCell(ends + kDecodeTileHeads);
      }
      const float new_top = fmaxf(top, __uint_as_float(most));
      const float decay = expf(top - new_top), weight = expf(__uint_as_float(most) - new_top);
      const float4 x = value.Values();
      top = new_top;
      total = total * decay + __uint_as_float(all) * weight;
      sum.x = sum.x * decay + x.x * weight, sum.y = sum.y * decay + x.y * weight;
      sum.z = sum.z * decay + x.z * weight, sum.w = sum.w * decay + x.w * weight;
    }
    WarpSync();
    const float weight = expf(top - WarpMax(top));  // 0 where the lane has no segment
    total = WarpSum(total * weight);
    const float by = weight / total;
    sum.x = WarpSum(sum.x * by), sum.y = WarpSum(sum.y * by);
    sum.z = WarpSum(sum.z * by), sum.w = WarpSum(sum.w * by);
    if (c.Lane() == 0) Publish4(c.Row(layer, row) + layer.cells.attention + head * kind.head_dim + column, sum);
  }

  __device__ __forceinline__ void Merge() const {
    const int groups = kind.head_dim / 4, row_units = kind.heads * groups, blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
    for (int unit = static_cast<int>(blockIdx.x) + blocks * c.Warp(); unit < c.args.rows * row_units;
         unit += blocks * kConsumerWarps) {
      const int row = unit / row_units, of_row = unit % row_units;
      MergeColumns(row, of_row / groups, of_row % groups * 4);
    }
  }
};

}  // namespace lapidary::gpu::decode_step
