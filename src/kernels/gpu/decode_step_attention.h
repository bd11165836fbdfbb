#pragma once

#include <cmath>

#include "kernels/gpu/decode_step_block.h"
#include "kernels/gpu/device/bf16.h"

// Parts of decode_step.cu: attention in float32. A row's visible positions are cut into segments; a block takes up to
// kDecodeTileHeads query heads of one K/V head over one segment, 32 positions at a time: scores (a warp two positions,
// 16 lanes each), weights (a thread each), then values (a thread four columns of four heads and a part of the
// positions). Then the segments of each four columns are merged by one warp.
namespace lapidary::gpu::decode_step {

// What a block attends to.
struct Segment {
  int row, kv_head, tile, index;
  int head, heads;        // the first, and how many
  int begin, end;         // positions
  int old_end;            // positions before it were written by earlier steps
  const int32_t* blocks;  // blocks[p / kBlockPositions] holds position p
};

// The pairs (j, j + head_dim / 2) of a head's vector, in one warp: j = lane + 32 i.
struct HeadPairs {
  static constexpr int kCount = kMaxHeadDim / 2 / kWarpSize;
  float low[kCount], high[kCount];

  __device__ __forceinline__ void Await(const float* cells, int half, int lane, Patience& patience) {
    uint32_t bits[2][kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int j = lane + kWarpSize * i;
      bits[0][i] = j < half ? LoadCell(cells + j) : 0;
      bits[1][i] = j < half ? LoadCell(cells + j + half) : 0;
    }
    auto wait = patience.Begin();
    for (;;) {
      bool missing = false;
#pragma unroll
      for (int i = 0; i < kCount; ++i) missing |= bits[0][i] == kEmptyCell || bits[1][i] == kEmptyCell;
      if (!missing || !wait.Lasts()) break;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int j = lane + kWarpSize * i;
        if (bits[0][i] == kEmptyCell) bits[0][i] = LoadCell(cells + j);
        if (bits[1][i] == kEmptyCell) bits[1][i] = LoadCell(cells + j + half);
      }
    }
    WarpSync();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      low[i] = __uint_as_float(bits[0][i]);
      high[i] = __uint_as_float(bits[1][i]);
    }
  }

  __device__ __forceinline__ void Norm(int half, float eps) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) squares += low[i] * low[i] + high[i] * high[i];
    const float scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(2 * half) + eps);
#pragma unroll
    for (int i = 0; i < kCount; ++i) low[i] *= scale, high[i] *= scale;
  }

  // What the pairs are multiplied with, and the row's angles.
  struct Turn {
    float low[kCount], high[kCount], cos[kCount], sin[kCount];

    __device__ __forceinline__ void Load(int half, const float* weight, const RopeTableView& rope, int row, int lane) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int j = lane + kWarpSize * i;
        const bool is_pair = j < half, turns = j < rope.pairs;
        low[i] = is_pair ? weight[j] : 0.0f;
        high[i] = is_pair ? weight[j + half] : 0.0f;
        cos[i] = turns ? rope.cos[int64_t{row} * rope.pairs + j] : 1.0f;
        sin[i] = turns ? rope.sin[int64_t{row} * rope.pairs + j] : 0.0f;
      }
    }
  };

  __device__ __forceinline__ void WeighAndRotate(const Turn& turn) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float a = low[i] * turn.low[i], b = high[i] * turn.high[i];
      low[i] = a * turn.cos[i] - b * turn.sin[i];
      high[i] = b * turn.cos[i] + a * turn.sin[i];
    }
  }

  template <typename Store>
  __device__ __forceinline__ void ForEach(int half, int lane, const Store& store) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int j = lane + kWarpSize * i;
      if (j >= half) break;
      store(j, low[i]);
      store(j + half, high[i]);
    }
  }
};

// Four values of the cache, not by way of the first-level cache: other blocks write it.
template <bool kBf16>
__device__ __forceinline__ float4 LoadCached4(const std::byte* vector, int element) {
  if constexpr (kBf16) {
    const auto* at = reinterpret_cast<const float*>(vector) + element / 2;
    const uint32_t a = LoadCell(at), b = LoadCell(at + 1);
    return make_float4(LowBf16(a), HighBf16(a), LowBf16(b), HighBf16(b));
  } else {
    return LoadCells4(reinterpret_cast<const float*>(vector) + element).Values();
  }
}

template <bool kBf16>
__device__ __forceinline__ void StoreCached(std::byte* vector, int element, float value) {
  if constexpr (kBf16) {
    reinterpret_cast<uint16_t*>(vector)[element] = FloatToBf16(value);
  } else {
    reinterpret_cast<float*>(vector)[element] = value;
  }
}

template <int kRowSlots, bool kBf16>
struct Attention {
  Context<kRowSlots>& c;
  const DecodeLayer& layer;
  const DecodeAttention& kind;
  Segment s{};

  __device__ __forceinline__ Attention(Context<kRowSlots>& context, const DecodeLayer& l)
      : c(context), layer(l), kind(context.args.kinds[l.kind]) {}

  __device__ __forceinline__ int Group() const { return kind.heads / kind.kv_heads; }
  __device__ __forceinline__ int Tiles() const { return (Group() + kDecodeTileHeads - 1) / kDecodeTileHeads; }
  __device__ __forceinline__ int PartialFloats() const { return kDecodeTileHeads * (kind.head_dim + 2); }
  // The result of a segment: values [kDecodeTileHeads, head_dim] still to be divided by the sum, maxima and sums.
  __device__ __forceinline__ float* Partial(int row, int segment, int tile_of_all) const {
    const int64_t index = int64_t{segment} * kind.kv_heads * Tiles() + tile_of_all;
    return c.Row(layer, row) + layer.cells.partials + index * PartialFloats();
  }
  __device__ __forceinline__ int SegmentsOf(int row) const {
    return SegmentsAt(c.shared.positions[row], kind.window, kind.max_segments);
  }
  // Key (0) or value (1) of a position.
  __device__ __forceinline__ std::byte* Cached(int which, int position) const {
    const int64_t vector = int64_t{which} * kind.kv_heads + s.kv_head;
    const int64_t element = (vector * kBlockPositions + position % kBlockPositions) * kind.head_dim;
    return layer.kv + s.blocks[position / kBlockPositions] * kind.cache.block_bytes + element * (kBf16 ? 2 : 4);
  }

  // All segments of the block, then what it merges.
  __device__ __forceinline__ void Run(int layer_index) {
    c.At(Stage::kAttention, layer_index);
    int begin = 0;  // of the row's segments and tiles among all
    c.Sync();       // shared memory was the products'
    for (int row = 0; row < c.args.rows; ++row) {
      const int tiles = kind.kv_heads * Tiles(), count = SegmentsOf(row) * tiles, blocks = static_cast<int>(gridDim.x);
      int item = (static_cast<int>(blockIdx.x) - begin % blocks + blocks) % blocks;
      for (; item < count; item += blocks) {
        Find(row, item / tiles, item % tiles);
        Attend();
      }
      begin += count;
    }
    c.At(Stage::kMerge, layer_index);
    Merge();
  }

  __device__ __forceinline__ void Find(int row, int index, int tile_of_all) {
    const int position = c.shared.positions[row], sequence = c.shared.sequences[row];
    const int first = kind.window == 0 || position < kind.window ? 0 : position - kind.window + 1;
    const int64_t seen = position - first + 1;
    const int count = SegmentsOf(row);
    s.row = row;
    s.index = index;
    s.kv_head = tile_of_all / Tiles();
    s.tile = tile_of_all % Tiles();
    s.head = s.kv_head * Group() + s.tile * kDecodeTileHeads;
    s.heads = Group() - s.tile * kDecodeTileHeads;
    if (s.heads > kDecodeTileHeads) s.heads = kDecodeTileHeads;
    s.begin = first + static_cast<int>(seen * index / count);
    s.end = first + static_cast<int>(seen * (index + 1) / count);
    int earlier = 0;  // rows of the sequence right before this one
    while (earlier < row && c.shared.sequences[row - earlier - 1] == sequence) ++earlier;
    s.old_end = layer.writes_kv ? position - earlier : position + 1;
    s.blocks = kind.cache.blocks + int64_t{sequence} * kind.cache.max_blocks - kind.cache.first_block[sequence];
  }

  static constexpr int kLineBytes = 128;  // of the second-level cache
  static constexpr int kWarpPositions = 2, kKeyLanes = kWarpSize / kWarpPositions;
  static constexpr int kPassPositions = kWarpPositions * kConsumerWarps;  // of a chunk, scored at once
  static constexpr int kKeyStep = kKeyLanes * 4;
  static constexpr int kKeyLoads = kMaxHeadDim / kKeyStep;  // of four values, a lane

  // The lane's part of the key of its position: four values of every kKeyStep.
  __device__ __forceinline__ void LoadKey(int position, float4 (&key)[kKeyLoads]) const {
    const std::byte* vector = Cached(0, position);
#pragma unroll
    for (int j = 0; j < kKeyLoads; ++j) {
      const int element = j * kKeyStep + c.Lane() % kKeyLanes * 4;
      if (element < kind.head_dim) key[j] = LoadCached4<kBf16>(vector, element);
    }
  }

  // The query heads to shared memory, a warp each; then the keys and values of the step's own positions
  // go to the cache. Several blocks may write the same values there.
  __device__ __forceinline__ void PrepareVectors() {
    const int half = kind.head_dim / 2, warp = c.Warp();
    const float* cells = c.Row(layer, s.row);
    HeadPairs x;
    if (warp < kDecodeTileHeads) {
      float* query = c.shared.attention.query[warp];
      if (warp < s.heads) {
        HeadPairs::Turn turn;
        turn.Load(half, layer.q_norm, kind.rope, s.row, c.Lane());
        x.Await(cells + layer.cells.qkv + (s.head + warp) * kind.head_dim, half, c.Lane(), c.patience);
        x.Norm(half, c.args.eps);
        x.WeighAndRotate(turn);
      } else {
        x = HeadPairs{};
      }
      x.ForEach(half, c.Lane(), [&](int j, float value) { query[j] = value; });
    }
    const int from = s.begin > s.old_end ? s.begin : s.old_end;
    for (int i = kConsumerWarps - 1 - warp; i < 2 * (s.end - from); i += kConsumerWarps) {
      const int position = from + i / 2, which = i % 2, row = s.row - (c.shared.positions[s.row] - position);
      const int vector = kind.heads + (which == 1 && !layer.v_is_k ? kind.kv_heads : 0) + s.kv_head;
      HeadPairs::Turn turn;
      turn.Load(half, layer.k_norm, kind.rope, row, c.Lane());
      x.Await(c.Row(layer, row) + layer.cells.qkv + vector * kind.head_dim, half, c.Lane(), c.patience);
      x.Norm(half, c.args.eps);
      if (which == 0) x.WeighAndRotate(turn);
      std::byte* to = Cached(which, position);
      x.ForEach(half, c.Lane(), [&](int j, float value) { StoreCached<kBf16>(to, j, value); });
    }
  }

  // Scores of the chunk's position of the lane with all heads.
  __device__ __forceinline__ void Score(const float4 (&key)[kKeyLoads], bool valid, int at,
                                        float (*scores)[kDecodeTileHeads]) const {
    const int part = c.Lane() % kKeyLanes;
    float sum[kDecodeTileHeads] = {};
#pragma unroll
    for (int j = 0; j < kKeyLoads; ++j) {
      const int element = j * kKeyStep + part * 4;
      if (element >= kind.head_dim) break;
#pragma unroll
      for (int h = 0; h < kDecodeTileHeads; ++h) {
        const float4 q = *reinterpret_cast<const float4*>(&c.shared.attention.query[h][element]);
        sum[h] = __fmaf_rn(q.w, key[j].w,
                           __fmaf_rn(q.z, key[j].z, __fmaf_rn(q.y, key[j].y, __fmaf_rn(q.x, key[j].x, sum[h]))));
      }
    }
    float mine = 0.0f;
#pragma unroll
    for (int h = 0; h < kDecodeTileHeads; ++h) {
#pragma unroll
      for (int mask = 1; mask < kKeyLanes; mask *= 2) sum[h] += WarpShuffleXor(sum[h], mask);
      if (h == part) mine = sum[h];
    }
    if (valid && part < kDecodeTileHeads) scores[at][part] = mine;
  }

  // What a thread adds up of the values: four columns of four heads, lanes of a warp differing in the column first.
  static constexpr int kValueHeads = 4;
  struct ValuePlace {
    int column, head;
    int part, parts;  // positions part, part + parts, ...
    bool active;

    __device__ __forceinline__ ValuePlace(int head_dim, int of_block) {
      constexpr int kThreadsOfHeads = kConsumers / (kDecodeTileHeads / kValueHeads);
      const int groups = head_dim / 4, thread = of_block % kThreadsOfHeads;
      head = of_block / kThreadsOfHeads * kValueHeads;
      parts = kThreadsOfHeads / groups < kWarpSize ? kThreadsOfHeads / groups : kWarpSize;
      const int per_warp = kWarpSize / parts, lane = thread % kWarpSize;
      const int group = thread / kWarpSize * per_warp + lane % per_warp;
      column = group * 4;
      part = lane / per_warp;
      active = group < groups;
    }
  };

  static constexpr int kValueLoads = 8;  // positions of a thread whose values are under way at once

  // The thread's values from its position `begin` of a chunk of `count` on.
  __device__ __forceinline__ void LoadValues(const ValuePlace& place, int base, int begin, int count,
                                             float4 (&value)[kValueLoads]) const {
#pragma unroll
    for (int i = 0; i < kValueLoads; ++i) {
      const int at = begin + i * place.parts;
      value[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (place.active && at < count) value[i] = LoadCached4<kBf16>(Cached(1, base + at), place.column);
    }
  }

  // Adds the weighted values of a chunk, whose first ones are loaded.
  __device__ __forceinline__ void AddValues(const ValuePlace& place, int base, int count,
                                            const float (*weight)[kDecodeTileHeads], float4 (&value)[kValueLoads],
                                            float4 (&sum)[kValueHeads]) const {
    if (!place.active) return;
    for (int begin = place.part; begin < count; begin += kValueLoads * place.parts) {
      if (begin > place.part) LoadValues(place, base, begin, count, value);
#pragma unroll
      for (int i = 0; i < kValueLoads; ++i) {
        const int at = begin + i * place.parts;
        if (at >= count) break;
        const float4 w = *reinterpret_cast<const float4*>(&weight[at][place.head]);
        const float each[kValueHeads] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int h = 0; h < kValueHeads; ++h) {
          sum[h].x = __fmaf_rn(each[h], value[i].x, sum[h].x), sum[h].y = __fmaf_rn(each[h], value[i].y, sum[h].y);
          sum[h].z = __fmaf_rn(each[h], value[i].z, sum[h].z), sum[h].w = __fmaf_rn(each[h], value[i].w, sum[h].w);
        }
      }
    }
  }

  // The lane's position of a pass, for scores.
  __device__ __forceinline__ int KeyPlace() const { return c.Warp() * kWarpPositions + c.Lane() / kKeyLanes; }

  // Scores of `count` positions from `base` on.
  __device__ __forceinline__ void ScoreChunk(int base, int count, float (*scores)[kDecodeTileHeads]) const {
    for (int pass = 0; pass + c.Warp() * kWarpPositions < count; pass += kPassPositions) {
      const int at = pass + KeyPlace();
      float4 key[kKeyLoads] = {};
      if (at < count) LoadKey(base + at, key);
      Score(key, at < count, at, scores);
    }
  }

  // Brings the segment's first keys and values near while the query is awaited: registers have no room for them.
  __device__ __forceinline__ void FetchCached() const {
    const int row_bytes = kind.head_dim * (kBf16 ? 2 : 4), lines = (row_bytes + kLineBytes - 1) / kLineBytes;
    const int end = s.end < s.old_end ? s.end : s.old_end;
    const int count = end - s.begin < kChunkPositions ? end - s.begin : kChunkPositions;
    for (int i = c.thread; i < 2 * count * lines; i += kConsumers)
      PrefetchL2(Cached(i / (count * lines), s.begin + i % (count * lines) / lines) + i % lines * kLineBytes);
  }

  // The segment's softmax-weighted values, published for the merge.
  __device__ __forceinline__ void Attend() {
    const int lane = c.Lane(), head = lane % kDecodeTileHeads;
    FetchCached();
    PrepareVectors();
    c.Sync();
    const ValuePlace place(kind.head_dim, c.thread);
    float4 sum[kValueHeads] = {};
    float top = -INFINITY, total = 0.0f;  // of head lane % 8, the same in every warp
    for (int base = s.begin, chunk = 0; base < s.end; base += kChunkPositions, chunk ^= 1) {
      const int count = s.end - base < kChunkPositions ? s.end - base : kChunkPositions;
      float(*weight)[kDecodeTileHeads] = c.shared.attention.weight[chunk];
      ScoreChunk(base, count, weight);
      float4 value[kValueLoads];
      LoadValues(place, base, place.part, count, value);
      c.Sync();
      const float before = top;
      for (int i = lane / kDecodeTileHeads; i < count; i += kWarpSize / kDecodeTileHeads)
        top = fmaxf(top, weight[i][head]);
      top = fmaxf(top, WarpShuffleXor(top, 8));
      top = fmaxf(top, WarpShuffleXor(top, 16));
      c.Sync();  // all have read the scores
      const int own = c.thread / kDecodeTileHeads;
      if (own < count) weight[own][head] = expf(weight[own][head] - top);
      c.Sync();
      const float decay = expf(before - top);  // 0 at first
      float added = 0.0f;
      for (int i = lane / kDecodeTileHeads; i < count; i += kWarpSize / kDecodeTileHeads) added += weight[i][head];
      added += WarpShuffleXor(added, 8);
      added += WarpShuffleXor(added, 16);
      total = total * decay + added;
#pragma unroll
      for (int h = 0; h < kValueHeads; ++h) {
        const float by = WarpShuffle(decay, place.head + h);
        sum[h].x *= by, sum[h].y *= by, sum[h].z *= by, sum[h].w *= by;
      }
      AddValues(place, base, count, weight, value, sum);
    }
    PublishSegment(place, sum, top, total);
    c.Sync();  // what is in shared memory is needed no more
  }

  __device__ __forceinline__ void PublishSegment(const ValuePlace& place, float4 (&sum)[kValueHeads], float top,
                                                 float total) const {
    float* partial = Partial(s.row, s.index, s.kv_head * Tiles() + s.tile);
#pragma unroll
    for (int h = 0; h < kValueHeads; ++h) {
      for (int mask = kWarpSize / place.parts; mask < kWarpSize; mask *= 2) {
        sum[h].x += WarpShuffleXor(sum[h].x, mask), sum[h].y += WarpShuffleXor(sum[h].y, mask);
        sum[h].z += WarpShuffleXor(sum[h].z, mask), sum[h].w += WarpShuffleXor(sum[h].w, mask);
      }
      if (place.active && place.part == 0) Publish4(partial + (place.head + h) * kind.head_dim + place.column, sum[h]);
    }
    if (c.thread >= kDecodeTileHeads) return;
    Publish(partial + kDecodeTileHeads * kind.head_dim + c.thread, top);
    Publish(partial + kDecodeTileHeads * (kind.head_dim + 1) + c.thread, total);
  }

  // Four columns of one head over all segments of a row: each lane every 32nd segment.
  __device__ __forceinline__ void MergeColumns(int row, int head, int column) const {
    const int in_group = head % Group(), tile = in_group / kDecodeTileHeads, h = in_group % kDecodeTileHeads;
    const int of_all = head / Group() * Tiles() + tile, count = SegmentsOf(row);
    float top = -INFINITY, total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
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
    sum.x = WarpSum(sum.x * weight) / total, sum.y = WarpSum(sum.y * weight) / total;
    sum.z = WarpSum(sum.z * weight) / total, sum.w = WarpSum(sum.w * weight) / total;
    if (c.Lane() == 0) Publish4(c.Row(layer, row) + layer.cells.attention + head * kind.head_dim + column, sum);
  }

  __device__ __forceinline__ void Merge() const {
    const int groups = kind.head_dim / 4, row_units = kind.heads * groups, blocks = static_cast<int>(gridDim.x);
    for (int unit = static_cast<int>(blockIdx.x) + blocks * c.Warp(); unit < c.args.rows * row_units;
         unit += blocks * kConsumerWarps) {
      const int row = unit / row_units, of_row = unit % row_units;
      MergeColumns(row, of_row / groups, of_row % groups * 4);
    }
  }
};

}  // namespace lapidary::gpu::decode_step
