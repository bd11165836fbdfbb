#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, comes before highway.h

#include "hwy/highway.h"

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/dot_tile-inl.h"

#ifndef LAPIDARY_KERNELS_CPU_ATTENTION_ONCE_
#define LAPIDARY_KERNELS_CPU_ATTENTION_ONCE_
namespace lapidary::cpu {

// The softmax so far of `group` query heads over some positions: running maximum, sum of exponentials, weighted values.
struct SoftmaxState {
  float* max;    // [group]
  float* sum;    // [group]
  float* value;  // [group, head_dim]
};

inline size_t StateFloats(size_t group, size_t head_dim) { return group * (head_dim + 2); }

inline SoftmaxState StateAt(float* memory, size_t group) { return {memory, memory + group, memory + 2 * group}; }

inline void ClearState(const SoftmaxState& state, size_t group, size_t head_dim) {
  std::fill_n(state.max, group, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, group, 0.0f);
  std::fill_n(state.value, group * head_dim, 0.0f);
}

// Keys and values of one K/V head in one block: [kBlockPositions, head_dim] each.
struct KvTile {
  const std::byte* k;
  const std::byte* v;
};

inline KvTile TileOf(const AttentionShape& shape, const KvBlocks& kv, int64_t block, int kv_head) {
  const int64_t head_bytes = kBlockPositions * shape.head_dim * static_cast<int64_t>(SizeOf(kv.dtype));
  const std::byte* base = kv.data + kv.blocks[block - kv.first_block] * kv.block_bytes;
  return {base + kv_head * head_bytes, base + (shape.kv_heads + kv_head) * head_bytes};
}

// The positions [first, first of none) that a row sees.
inline int64_t FirstVisible(const AttentionShape& shape, int64_t position) {
  return shape.window == 0 ? 0 : std::max<int64_t>(0, position - shape.window + 1);
}

}  // namespace lapidary::cpu
#endif  // LAPIDARY_KERNELS_CPU_ATTENTION_ONCE_

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE VF LoadValue(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadValue(const BF16* p) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> dh;
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p)))));
}
inline float ScalarValue(float x) { return x; }
inline float ScalarValue(BF16 x) { return ToFloat(x); }

// value[g][c] = value[g][c] * decay[g] + sum over j of weight[g][j] * v[j][c], for kHeads heads and kVectors vectors.
template <int kHeads, int kVectors, typename T>
HWY_INLINE void AddValues(const T* HWY_RESTRICT v, size_t head_dim, size_t count, const float* HWY_RESTRICT weight,
                          const float* HWY_RESTRICT decay, float* HWY_RESTRICT value) {
  const DF df;
  VF sum[kHeads][kVectors];
  HWY_UNROLL(8)
  for (int g = 0; g < kHeads; ++g) {
    HWY_UNROLL(8)
    for (int i = 0; i < kVectors; ++i) {
      sum[g][i] = hn::Mul(hn::LoadU(df, value + g * head_dim + i * kLanes), hn::Set(df, decay[g]));
    }
  }
  for (size_t j = 0; j < count; ++j) {
    VF row[kVectors];
    HWY_UNROLL(8)
    for (int i = 0; i < kVectors; ++i) row[i] = LoadValue(v + j * head_dim + i * kLanes);
    HWY_UNROLL(8)
    for (int g = 0; g < kHeads; ++g) {
      const VF w = hn::Set(df, weight[g * kBlockPositions + j]);
      HWY_UNROLL(8)
      for (int i = 0; i < kVectors; ++i) sum[g][i] = hn::MulAdd(w, row[i], sum[g][i]);
    }
  }
  HWY_UNROLL(8)
  for (int g = 0; g < kHeads; ++g) {
    HWY_UNROLL(8)
    for (int i = 0; i < kVectors; ++i) hn::StoreU(sum[g][i], df, value + g * head_dim + i * kLanes);
  }
}

// AddValues over all columns for kHeads heads; columns behind the last whole vector one by one.
template <int kHeads, typename T>
void AddValuesOfHeads(const T* v, size_t head_dim, size_t count, const float* weight, const float* decay,
                      float* value) {
  constexpr size_t kWide = HWY_MAX_BYTES == 64 ? 4 : 2;
  size_t c = 0;
  for (; c + kWide * kLanes <= head_dim; c += kWide * kLanes) {
    AddValues<kHeads, kWide>(v + c, head_dim, count, weight, decay, value + c);
  }
  for (; c + kLanes <= head_dim; c += kLanes) AddValues<kHeads, 1>(v + c, head_dim, count, weight, decay, value + c);
  for (; c < head_dim; ++c) {
    for (int g = 0; g < kHeads; ++g) {
      float sum = value[g * head_dim + c] * decay[g];
      for (size_t j = 0; j < count; ++j) sum += weight[g * kBlockPositions + j] * ScalarValue(v[j * head_dim + c]);
      value[g * head_dim + c] = sum;
    }
  }
}

// x[i] = exp(x[i] - shift) for i < count; returns their sum, lanes first.
float ExpAndSum(float* HWY_RESTRICT x, size_t count, float shift) {
  const DF df;
  HWY_ALIGN float lanes[kLanes] = {};
  VF sum = hn::Zero(df);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF e = hn::Exp(df, hn::Sub(hn::LoadU(df, x + i), hn::Set(df, shift)));
    hn::StoreU(e, df, x + i);
    sum = hn::Add(sum, e);
  }
  if (i < count) {
    std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
    std::copy(x + i, x + count, lanes);
    const VF shifted = hn::Sub(hn::Load(df, lanes), hn::Set(df, shift));
    // Lanes without a position hold -inf: keep them out of exp's domain and of the sum.
    const VF e =
        hn::IfThenElseZero(hn::Gt(shifted, hn::Set(df, -200.0f)), hn::Exp(df, hn::Max(shifted, hn::Set(df, -200.0f))));
    hn::Store(e, df, lanes);
    std::copy(lanes, lanes + (count - i), x + i);
    sum = hn::Add(sum, e);
  }
  hn::Store(sum, df, lanes);
  float total = 0.0f;
  for (const float lane : lanes) total += lane;
  return total;
}

// Takes positions [begin, end) of one block into the state of `group` heads. q is packed [group, PackedColumns(d)].
template <class Load, typename V>
void AttendBlock(const KvTile& tile, size_t begin, size_t end, size_t group, size_t d, const float* q,
                 const SoftmaxState& state) {
  const size_t count = end - begin;
  HWY_ALIGN float score[kBlockPositions * 8];
  TileArgs<typename Load::T> args;
  args.x_stride = PackedColumns(d);
  args.w_stride = d;
  args.out_stride = kBlockPositions;
  for (size_t g = 0; g < group; g += 8) {  // at most 8 heads at a time
    const size_t heads = std::min<size_t>(8, group - g);
    args.x = q + g * args.x_stride;
    args.w = reinterpret_cast<const typename Load::T*>(tile.k) + begin * d;
    args.out = score;
    for (size_t c = 0; c < d; c += DotBlockSize(d)) {
      DotTiles<Load>(args, heads, count, c, std::min(d, c + DotBlockSize(d)), c > 0);
    }
    float decay[8];
    for (size_t i = 0; i < heads; ++i) {
      float* row = score + i * kBlockPositions;
      const float top = std::max(state.max[g + i], *std::max_element(row, row + count));
      decay[i] = std::exp(state.max[g + i] - top);  // 0 for the first block, whose old maximum is -inf
      state.sum[g + i] = state.sum[g + i] * decay[i] + ExpAndSum(row, count, top);
      state.max[g + i] = top;
    }
    const V* v = reinterpret_cast<const V*>(tile.v) + begin * d;
    float* value = state.value + g * d;
    size_t i = 0;
    for (; i + 4 <= heads; i += 4)
      AddValuesOfHeads<4>(v, d, count, score + i * kBlockPositions, decay + i, value + i * d);
    for (; i < heads; ++i) AddValuesOfHeads<1>(v, d, count, score + i * kBlockPositions, decay + i, value + i * d);
  }
}

void AttendBlockOfType(DType dtype, const KvTile& tile, size_t begin, size_t end, size_t group, size_t d,
                       const float* q, const SoftmaxState& state) {
  if (dtype == DType::kBF16) {
    AttendBlock<LoadBF16, BF16>(tile, begin, end, group, d, q, state);
  } else {
    AttendBlock<LoadF32, float>(tile, begin, end, group, d, q, state);
  }
}

// Packs the query heads [group, d] of one K/V head for keys of `dtype`.
void PackQuery(DType dtype, const float* q, size_t group, size_t d, float* packed) {
  for (size_t g = 0; g < group; ++g) {
    if (dtype == DType::kBF16) {
      PackRow<LoadBF16>(q + g * d, d, packed + g * PackedColumns(d));
    } else {
      PackRow<LoadF32>(q + g * d, d, packed + g * PackedColumns(d));
    }
  }
}

size_t PackedQueryColumns(size_t d) { return PackedColumns(d); }

// total = total merged with part, both of `group` heads; part is left as it is.
void MergeState(const SoftmaxState& part, size_t group, size_t d, const SoftmaxState& total) {
  const DF df;
  for (size_t g = 0; g < group; ++g) {
    const float top = std::max(total.max[g], part.max[g]);
    const float keep = std::exp(total.max[g] - top), take = std::exp(part.max[g] - top);
    total.sum[g] = total.sum[g] * keep + part.sum[g] * take;
    total.max[g] = top;
    float* HWY_RESTRICT to = total.value + g * d;
    const float* HWY_RESTRICT from = part.value + g * d;
    size_t c = 0;
    for (; c + kLanes <= d; c += kLanes) {
      const VF kept = hn::Mul(hn::LoadU(df, to + c), hn::Set(df, keep));
      hn::StoreU(hn::Add(kept, hn::Mul(hn::LoadU(df, from + c), hn::Set(df, take))), df, to + c);
    }
    for (; c < d; ++c) to[c] = to[c] * keep + from[c] * take;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapidary::cpu {

HWY_EXPORT(AttendBlockOfType);
HWY_EXPORT(PackQuery);
HWY_EXPORT(PackedQueryColumns);
HWY_EXPORT(MergeState);

namespace {

// Rows of one sequence that share a pass over its keys and values.
constexpr size_t kTileRowsMax = 8;
// Query elements times segments below which one thread does it all.
constexpr size_t kParallelElements = 1024;

struct Work {
  const AttentionShape& shape;
  const float* q;
  std::span<const AttentionRow> rows;
  float* out;
  size_t group, d, packed_columns;

  const float* Query(size_t row, int kv_head) const {
    return q + (row * static_cast<size_t>(shape.heads) + static_cast<size_t>(kv_head) * group) * d;
  }
  // Writes value / sum of the finished state.
  void Finish(size_t row, int kv_head, const SoftmaxState& state) const {
    float* to = out + (row * static_cast<size_t>(shape.heads) + static_cast<size_t>(kv_head) * group) * d;
    for (size_t g = 0; g < group; ++g) {
      const float scale = 1.0f / state.sum[g];
      for (size_t c = 0; c < d; ++c) to[g * d + c] = state.value[g * d + c] * scale;
    }
  }
  // The part of `block` that `position` sees, as positions within the block; empty when begin >= end.
  std::pair<int64_t, int64_t> Visible(int64_t position, int64_t block) const {
    const int64_t start = block * kBlockPositions;
    return {std::max<int64_t>(0, FirstVisible(shape, position) - start),
            std::min(kBlockPositions, position + 1 - start)};
  }
};

// One segment of `count` rows from `first`, block by block; states hold one state a row, cleared by the caller.
void AttendSegment(const Work& work, size_t first, size_t count, int kv_head, int64_t segment, const float* packed,
                   float* states) {
  const auto attend = HWY_DYNAMIC_DISPATCH(AttendBlockOfType);
  const KvBlocks& kv = *work.rows[first].kv;
  const size_t state_floats = StateFloats(work.group, work.d);
  constexpr int64_t kBlocks = kSegmentPositions / kBlockPositions;
  for (int64_t block = segment * kBlocks; block < (segment + 1) * kBlocks; ++block) {
    for (size_t i = 0; i < count; ++i) {
      const auto [begin, end] = work.Visible(work.rows[first + i].position, block);
      if (begin >= end) continue;
      attend(kv.dtype, TileOf(work.shape, kv, block, kv_head), static_cast<size_t>(begin), static_cast<size_t>(end),
             work.group, work.d, packed + i * work.group * work.packed_columns,
             StateAt(states + i * state_floats, work.group));
    }
  }
}

// All segments of a tile of rows, for many rows: one thread does a tile.
void AttendTile(const Work& work, size_t first, size_t count, int kv_head, std::vector<float>& memory) {
  const size_t state_floats = StateFloats(work.group, work.d), packed_floats = work.group * work.packed_columns;
  memory.resize(std::max(memory.size(), count * (2 * state_floats + packed_floats)));
  float* packed = memory.data();
  float* totals = packed + count * packed_floats;
  float* parts = totals + count * state_floats;
  for (size_t i = 0; i < count; ++i) {
    HWY_DYNAMIC_DISPATCH(PackQuery)
    (work.rows[first].kv->dtype, work.Query(first + i, kv_head), work.group, work.d, packed + i * packed_floats);
    ClearState(StateAt(totals + i * state_floats, work.group), work.group, work.d);
  }
  const int64_t last = work.rows[first + count - 1].position / kSegmentPositions;
  for (int64_t segment = FirstVisible(work.shape, work.rows[first].position) / kSegmentPositions; segment <= last;
       ++segment) {
    for (size_t i = 0; i < count; ++i) ClearState(StateAt(parts + i * state_floats, work.group), work.group, work.d);
    AttendSegment(work, first, count, kv_head, segment, packed, parts);
    for (size_t i = 0; i < count; ++i) {
      const SoftmaxState part = StateAt(parts + i * state_floats, work.group);
      if (part.sum[0] == 0.0f) continue;  // the row sees nothing of this segment
      HWY_DYNAMIC_DISPATCH(MergeState)(part, work.group, work.d, StateAt(totals + i * state_floats, work.group));
    }
  }
  for (size_t i = 0; i < count; ++i) work.Finish(first + i, kv_head, StateAt(totals + i * state_floats, work.group));
}

struct SegmentTask {
  size_t row;
  int kv_head;
  int64_t segment;
};

// Few rows: every segment is a task of its own, merged afterwards in the order that AttendTile uses.
void AttendSegments(ThreadPool& pool, AttentionScratch& scratch, const Work& work) {
  std::vector<SegmentTask> tasks;
  for (size_t row = 0; row < work.rows.size(); ++row) {
    const int64_t position = work.rows[row].position;
    for (int kv_head = 0; kv_head < work.shape.kv_heads; ++kv_head) {
      for (int64_t s = FirstVisible(work.shape, position) / kSegmentPositions; s <= position / kSegmentPositions; ++s) {
        tasks.push_back({row, kv_head, s});
      }
    }
  }
  const size_t state_floats = StateFloats(work.group, work.d), packed_floats = work.group * work.packed_columns;
  scratch.partials.resize(std::max(scratch.partials.size(), (tasks.size() + 1) * state_floats));
  float* partials = scratch.partials.data();
  const auto attend = [&](size_t begin, size_t end, int thread) {
    std::vector<float>& memory = scratch.threads[static_cast<size_t>(thread)];
    memory.resize(std::max(memory.size(), packed_floats));
    for (size_t t = begin; t < end; ++t) {
      const SegmentTask& task = tasks[t];
      HWY_DYNAMIC_DISPATCH(PackQuery)
      (work.rows[task.row].kv->dtype, work.Query(task.row, task.kv_head), work.group, work.d, memory.data());
      ClearState(StateAt(partials + t * state_floats, work.group), work.group, work.d);
      AttendSegment(work, task.row, 1, task.kv_head, task.segment, memory.data(), partials + t * state_floats);
    }
  };
  // A single short segment is done before the other threads have started.
  if (tasks.size() == 1 || tasks.size() * work.group * work.d < kParallelElements) {
    attend(0, tasks.size(), 0);
  } else {
    pool.ParallelFor(tasks.size(), 1, attend);
  }
  const SoftmaxState total = StateAt(partials + tasks.size() * state_floats, work.group);
  for (size_t t = 0; t < tasks.size();) {
    const SegmentTask first = tasks[t];
    ClearState(total, work.group, work.d);
    for (; t < tasks.size() && tasks[t].row == first.row && tasks[t].kv_head == first.kv_head; ++t) {
      HWY_DYNAMIC_DISPATCH(MergeState)(StateAt(partials + t * state_floats, work.group), work.group, work.d, total);
    }
    work.Finish(first.row, first.kv_head, total);
  }
}

}  // namespace

void AppendKv(const AttentionShape& shape, const KvBlocks& kv, int64_t position, const float* k, const float* v) {
  const size_t d = static_cast<size_t>(shape.head_dim), element = SizeOf(kv.dtype);
  const size_t offset = static_cast<size_t>(position % kBlockPositions) * d * element;
  for (int head = 0; head < shape.kv_heads; ++head) {
    const KvTile tile = TileOf(shape, kv, position / kBlockPositions, head);
    const auto store = [&](const std::byte* tile_begin, const float* from) {
      std::byte* to = const_cast<std::byte*>(tile_begin) + offset;
      if (kv.dtype == DType::kF32) {
        std::memcpy(to, from, d * element);
      } else {
        std::transform(from, from + d, reinterpret_cast<BF16*>(to), [](float x) { return ToBF16(x); });
      }
    };
    store(tile.k, k + static_cast<size_t>(head) * d);
    store(tile.v, v + static_cast<size_t>(head) * d);
  }
}

void Attention(ThreadPool& pool, AttentionScratch& scratch, const AttentionShape& shape, const float* q,
               std::span<const AttentionRow> rows, float* out) {
  const size_t d = static_cast<size_t>(shape.head_dim);
  const Work work{shape,
                  q,
                  rows,
                  out,
                  static_cast<size_t>(shape.heads / shape.kv_heads),
                  d,
                  HWY_DYNAMIC_DISPATCH(PackedQueryColumns)(d)};
  scratch.threads.resize(std::max(scratch.threads.size(), static_cast<size_t>(pool.threads())));
  const size_t kv_heads = static_cast<size_t>(shape.kv_heads);
  if (rows.size() * kv_heads < 8 * static_cast<size_t>(pool.threads())) return AttendSegments(pool, scratch, work);

  std::vector<std::pair<size_t, size_t>> tiles;  // first row, count
  for (size_t row = 0; row < rows.size();) {
    size_t count = 1;
    while (count < kTileRowsMax && row + count < rows.size() && rows[row + count].kv == rows[row].kv) ++count;
    tiles.emplace_back(row, count);
    row += count;
  }
  pool.Run([&](int thread) {  // dealt out in turn: later rows see more
    for (size_t t = static_cast<size_t>(thread); t < tiles.size() * kv_heads;
         t += static_cast<size_t>(pool.threads())) {
      AttendTile(work, tiles[t / kv_heads].first, tiles[t / kv_heads].second, static_cast<int>(t % kv_heads),
                 scratch.threads[static_cast<size_t>(thread)]);
    }
  });
}

}  // namespace lapidary::cpu
#endif  // HWY_ONCE
