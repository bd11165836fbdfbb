#include "kernels/gpu/attention_decode.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/gpu/attention_decode_merge.h"
#include "kernels/gpu/attention_decode_segments.h"
#include "kernels/gpu/attention_decode_tile.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/cluster.h"
#include "kernels/gpu/device/dependent_launch.h"

// One block takes up to 8 query heads of one K/V head of one row (a tile) over one segment of the row's context. The
// segment passes through a ring of slots in shared memory, a chunk of keys and a chunk of values in turn. Scores: each
// warp multiplies 8 positions and a part of the head's columns. Values: each warp has columns of its own and all
// positions. Both are tensor core products whose 16 rows are the 8 heads' high terms, then their low terms. Segments
// are merged by whichever block comes last, in order of the segments.
namespace lapidary::gpu {
namespace decode {
namespace {

// Takes all chunks of the segment into the state. The ring holds the first ones; the query is in shared memory after a
// barrier.
template <int kDim, bool kBf16>
__device__ __forceinline__ void Attend(const KernelArgs& args, const Segment& s, Ring<kDim, kBf16>& ring,
                                       Shared<kDim, kBf16>* shared, State<Traits<kDim, kBf16>::kValueTiles>& state) {
  using T = Traits<kDim, kBf16>;
  ring.Wait(1);
  __syncthreads();
  uint32_t query[T::kPartSteps][4];
  LoadQueryPart<kDim, kBf16>(shared->query, query);
  const int chunks = s.end - s.begin;
  for (int c = 0; c < chunks; ++c) {
    float* scores = shared->scores[c % 2];
    Scores<kDim, kBf16>(ring.Next(), query, scores);
    // Of this chunk the values, of the next one the keys.
    ring.Wait(c + 1 < chunks ? 2 * c + 3 : 2 * c + 2);
    __syncthreads();
    // All warps are done with these keys and with the values before them.
    ring.Fill(args, s, 2 * c + 1, s.end);
    uint32_t weights[T::kChunk / 16][4];
    Weights<kDim, kBf16>(scores, (s.begin + c) * T::kChunk, s, state, weights);
    AddValues<kDim, kBf16>(ring.Next(), weights, state);
  }
  state.sum += WarpShuffleXor(state.sum, 1);
  state.sum += WarpShuffleXor(state.sum, 2);
}

// Calls store(head, column, values) for each pair of columns of the tile's values that the warp has.
template <int kDim, int kValueTiles, typename Store>
__device__ __forceinline__ void ForValues(const State<kValueTiles>& state, const Store& store) {
  const int lane = static_cast<int>(LaneIndex()), column = static_cast<int>(WarpIndex()) * kValueTiles * 8;
  if (column >= kDim) return;
#pragma unroll
  for (int j = 0; j < kValueTiles; ++j) {
    store(lane / 4, column + j * 8 + lane % 4 * 2,
          FloatVector<2>{{state.value[j][0] + state.value[j][2], state.value[j][1] + state.value[j][3]}});
  }
}

// Writes the segment's result, of which the warp has some columns.
template <int kDim, int kValueTiles>
__device__ __forceinline__ void StorePartial(const State<kValueTiles>& state, float* partial) {
  ForValues<kDim>(state, [&](int head, int column, const FloatVector<2>& x) {
    *reinterpret_cast<FloatVector<2>*>(partial + head * kDim + column) = x;
  });
  if (WarpIndex() == 0 && LaneIndex() % 4 == 0) {
    partial[kTileHeads * kDim + LaneIndex() / 4] = state.max;
    partial[kTileHeads * (kDim + 1) + LaneIndex() / 4] = state.sum;
  }
}

// Where a tile's results go.
template <int kDim>
struct TileOutput {
  RowOutput out;
  int64_t begin;  // of the tile's heads in the dense output
  int heads;      // that exist

  __device__ __forceinline__ TileOutput(const KernelArgs& args, const Segment& s) : out(args.a.out) {
    const int group = args.heads / args.kv_heads, first = s.head_tile * kTileHeads;
    begin = (static_cast<int64_t>(s.row) * args.heads + s.kv_head * group + first) * kDim;
    heads = group - first < kTileHeads ? group - first : kTileHeads;
  }

  // values / sum of one head from `column` on.
  template <int kCount>
  __device__ __forceinline__ void Store(int head, int column, FloatVector<kCount> values, float sum) const {
    if (head >= heads) return;
    const float scale = 1.0f / sum;
#pragma unroll
    for (float& value : values.v) value *= scale;
    const int64_t at = begin + head * kDim + column;
    if (out.values != nullptr) *reinterpret_cast<FloatVector<kCount>*>(out.values + at) = values;
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const auto terms = SplitBf16Pair(values.v[i], values.v[i + 1]);
      if (out.hi != nullptr) *reinterpret_cast<uint32_t*>(out.hi + at + i) = terms.hi;
      if (out.lo != nullptr) *reinterpret_cast<uint32_t*>(out.lo + at + i) = terms.lo;
    }
  }
};

// The results of a tile's segments, to be merged at once or in groups.
template <int kDim>
struct TilePartials {
  float* first;
  uint32_t* counters;
  int count, groups;

  __device__ __forceinline__ TilePartials(const KernelArgs& args, const Segment& s) : count(s.count) {
    const int64_t tile = (static_cast<int64_t>(s.row) * args.kv_heads + s.kv_head) * args.head_tiles + s.head_tile;
    first = args.partials + tile * args.max_segments * kPartialFloats<kDim>;
    counters = args.counters + tile * kCounters;
    groups = count <= kMergeAtOnce ? 1 : (count + kGroupSegments - 1) / kGroupSegments;
  }
  __device__ __forceinline__ float* Partial(int segment) const { return first + segment * kPartialFloats<kDim>; }
  // Group g has segments [Begin(g), Begin(g + 1)); its merged result takes the place of the first.
  __device__ __forceinline__ int Begin(int g) const { return g * count / groups; }
  __device__ __forceinline__ int GroupOf(int segment) const {
    int g = segment * groups / count;
    while (Begin(g + 1) <= segment) ++g;
    return g;
  }
};

// Merges the segments of group g in the place of the first one.
template <int kDim, bool kBf16>
__device__ __forceinline__ void MergeGroup(const TilePartials<kDim>& partials, int g, Shared<kDim, kBf16>* shared) {
  const int begin = partials.Begin(g);
  float* merged = partials.Partial(begin);
  Merge<kDim>(
      partials.Begin(g + 1) - begin, [&](int i) { return partials.Partial(begin + i); }, shared,
      [&](int head, int column, const FloatVector<4>& x) {
        *reinterpret_cast<FloatVector<4>*>(merged + head * kDim + column) = x;
      });
  if (threadIdx.x < kTileHeads) {
    merged[kTileHeads * kDim + threadIdx.x] = shared->merge_max[threadIdx.x];
    merged[kTileHeads * (kDim + 1) + threadIdx.x] = shared->merge_sum[threadIdx.x];
  }
}

// Writes the segment's result, and merges the tile's results where this block comes last.
template <int kDim, bool kBf16>
__device__ __forceinline__ void Finish(const KernelArgs& args, const Segment& s, Shared<kDim, kBf16>* shared,
                                       const State<Traits<kDim, kBf16>::kValueTiles>& state) {
  const TileOutput<kDim> output(args, s);
  if (s.count == 1) {
    return ForValues<kDim>(
        state, [&](int head, int column, const FloatVector<2>& x) { output.Store(head, column, x, state.sum); });
  }
  const TilePartials<kDim> partials(args, s);
  StorePartial<kDim>(state, partials.Partial(s.index));
  const int groups = partials.groups;
  if (groups > 1) {
    const int g = partials.GroupOf(s.index);
    if (!ComesLast(partials.counters + 1 + g, partials.Begin(g + 1) - partials.Begin(g), &shared->is_last)) return;
    MergeGroup<kDim, kBf16>(partials, g, shared);
  }
  const int count = groups > 1 ? groups : s.count;
  if (!ComesLast(partials.counters, count, &shared->is_last)) return;
  Merge<kDim>(
      count, [&](int i) { return partials.Partial(groups > 1 ? partials.Begin(i) : i); }, shared,
      [&](int head, int column, const FloatVector<4>& x) { output.Store(head, column, x, shared->merge_sum[head]); });
}

template <int kDim, bool kBf16>
__global__ void __launch_bounds__(kThreads, 2) AttentionDecodeKernel(const KernelArgs args) {
  using T = Traits<kDim, kBf16>;
  DependentsMayStart();
  auto* shared = DynamicShared<Shared<kDim, kBf16>>();
  auto* slots = reinterpret_cast<unsigned char*>(shared + 1);
  for (int i = static_cast<int>(threadIdx.x); i < kDim; i += kThreads) shared->query_weight[i] = args.a.q_weight[i];
  const int rows = LoadStep(args, &shared->step), items = CountItems<T::kChunk>(args, rows, &shared->step);
  bool waited = false;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const Segment s = FindSegment<T::kChunk>(args, rows, &shared->step, item);
    Ring<kDim, kBf16> ring{slots, args.slots};
    if (!waited) {
      ring.FillOld(args, s);
      WaitForEarlierKernels();
      waited = true;
    }
    ring.Fill(args, s, 0, s.end);
    LoadQuery<kDim>(args, s, shared->query_weight, shared->query);
    State<T::kValueTiles> state;
    Attend<kDim, kBf16>(args, s, ring, shared, state);
    Finish<kDim, kBf16>(args, s, shared, state);
    __syncthreads();
  }
  if (!waited) WaitForEarlierKernels();
}

// The cluster's results of one tile, one in each block, merged: each block takes one head.
template <int kDim>
__device__ __forceinline__ void MergeCluster(float* own, int count, const TileOutput<kDim>& output) {
  const int head = static_cast<int>(ClusterRank()), column = static_cast<int>(threadIdx.x) * 2;
  if (column >= kDim) return;
  FloatVector<2> x[kCluster];
  float max[kCluster], sum[kCluster], top = -INFINITY;
#pragma unroll
  for (int i = 0; i < kCluster; ++i) {
    const float* partial = ClusterShared(own, static_cast<unsigned>(i < count ? i : 0));
    x[i] = *reinterpret_cast<const FloatVector<2>*>(partial + head * kDim + column);
    max[i] = partial[kTileHeads * kDim + head];
    sum[i] = partial[kTileHeads * (kDim + 1) + head];
  }
#pragma unroll
  for (int i = 0; i < kCluster; ++i) top = i < count ? fmaxf(top, max[i]) : top;
  FloatVector<2> values{};
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kCluster; ++i) {
    const float weight = i < count ? expf(max[i] - top) : 0.0f;
    total += weight * sum[i];
    values.v[0] += weight * x[i].v[0];
    values.v[1] += weight * x[i].v[1];
  }
  output.Store(head, column, values, total);
}

// The same for contexts of few segments: a cluster of blocks takes a tile, a block a segment, and they merge through
// each other's shared memory.
template <int kDim, bool kBf16>
__global__ void __launch_bounds__(kThreads, 2) AttentionDecodeClusterKernel(const KernelArgs args) {
  using T = Traits<kDim, kBf16>;
  DependentsMayStart();
  auto* shared = DynamicShared<Shared<kDim, kBf16>>();
  auto* slots = reinterpret_cast<unsigned char*>(shared + 1);
  for (int i = static_cast<int>(threadIdx.x); i < kDim; i += kThreads) shared->query_weight[i] = args.a.q_weight[i];
  const int tiles = args.kv_heads * args.head_tiles, items = LoadStep(args, &shared->step) * tiles;
  const int rank = static_cast<int>(ClusterRank());
  bool waited = false;
  for (int item = static_cast<int>(blockIdx.x / kCluster); item < items;
       item += static_cast<int>(gridDim.x / kCluster)) {
    const int row = item / tiles, count = SegmentCount<T::kChunk>(args, shared->step.positions[row]);
    const Segment s = SegmentAt<T::kChunk>(args, &shared->step, row, item % tiles, rank < count ? rank : 0, count);
    Ring<kDim, kBf16> ring{slots, args.slots};
    if (!waited) {
      if (rank < count) ring.FillOld(args, s);
      WaitForEarlierKernels();
      waited = true;
    }
    auto* own = reinterpret_cast<float*>(slots);  // once the ring was read
    if (rank < count) {
      ring.Fill(args, s, 0, s.end);
      LoadQuery<kDim>(args, s, shared->query_weight, shared->query);
      State<T::kValueTiles> state;
      Attend<kDim, kBf16>(args, s, ring, shared, state);
      __syncthreads();
      StorePartial<kDim>(state, own);
    }
    ClusterSync();
    MergeCluster<kDim>(own, count, TileOutput<kDim>(args, s));
    WarpSync();
    ClusterSync();
  }
  if (!waited) WaitForEarlierKernels();
}

// Calls f.template operator()<head_dim, is_bf16>().
template <typename F>
auto ForShape(const AttentionDecodeShape& shape, const F& f) {
  switch (shape.head_dim) {
    case 32:
      return shape.is_bf16 ? f.template operator()<32, true>() : f.template operator()<32, false>();
    case 64:
      return shape.is_bf16 ? f.template operator()<64, true>() : f.template operator()<64, false>();
    case 128:
      return shape.is_bf16 ? f.template operator()<128, true>() : f.template operator()<128, false>();
    case 256:
      return shape.is_bf16 ? f.template operator()<256, true>() : f.template operator()<256, false>();
    case 512:
      return shape.is_bf16 ? f.template operator()<512, true>() : f.template operator()<512, false>();
    default:
      Throw(ErrorKind::kInvalidArgument,
            "head_dim: found " + std::to_string(shape.head_dim) + ", wanted 32, 64, 128, 256 or 512");
  }
}

int HeadTiles(const AttentionDecodeShape& shape) {
  return (shape.heads / shape.kv_heads + kTileHeads - 1) / kTileHeads;
}

// Few rows, unbounded: one block a multiprocessor, with much of a long context under way. Otherwise two of them, or one
// beside a block of another kernel. No more than the longest segment takes.
void SizeShared(AttentionDecodePlan& plan, int64_t segment_chunks, const DeviceInfo& device) {
  size_t fixed = 0, slot = 0;
  ForShape(plan.shape, [&]<int kDim, bool kBf16>() {
    fixed = sizeof(Shared<kDim, kBf16>);
    slot = Traits<kDim, kBf16>::kSlotBytes;
  });
  const int64_t wanted = plan.max_rows <= kDecodeFewRows && plan.shape.is_bf16 && plan.shape.window == 0 ? 8 : 5;
  const int64_t fit = (device.shared_bytes_per_block - static_cast<int64_t>(fixed)) / static_cast<int64_t>(slot);
  if (fit < kLeastSlots) {
    Throw(ErrorKind::kUnsupported, "attention over head_dim " + std::to_string(plan.shape.head_dim) + ": found " +
                                       std::to_string(device.shared_bytes_per_block) +
                                       " bytes of shared memory in a block, wanted " +
                                       std::to_string(fixed + kLeastSlots * slot));
  }
  plan.ring_slots = static_cast<int>(std::min({wanted, fit, std::max<int64_t>(kLeastSlots, 2 * segment_chunks)}));
  plan.shared_bytes = fixed + static_cast<size_t>(plan.ring_slots) * slot;
}

}  // namespace
}  // namespace decode

AttentionDecodePlan PlanAttentionDecode(const AttentionDecodeShape& shape, int max_rows, int64_t max_positions,
                                        const DeviceInfo& device) {
  using namespace decode;
  if (max_rows < 1 || max_rows > kDecodeMaxRows) {
    Throw(ErrorKind::kInvalidArgument, "rows of attention_decode: found " + std::to_string(max_rows) +
                                           ", wanted 1 to " + std::to_string(kDecodeMaxRows));
  }
  const int tiles = shape.kv_heads * HeadTiles(shape);
  if (int64_t{max_rows} * tiles > kMaxTiles) {
    Throw(ErrorKind::kUnsupported, "K/V heads of attention_decode: found " + std::to_string(shape.kv_heads) + " with " +
                                       std::to_string(max_rows) + " rows, wanted at most " +
                                       std::to_string(kMaxTiles / max_rows));
  }
  AttentionDecodePlan plan{.shape = shape, .max_rows = max_rows};
  const int chunk = ChunkPositions(shape.head_dim);
  const bool few = max_rows <= kDecodeFewRows;
  plan.clusters = device.compute_major >= 9 && shape.window > 0 && shape.window <= kClusterWindow;
  // Few rows: enough segments to keep the whole device busy with one row. More rows do that by themselves.
  const int wanted = plan.clusters ? kCluster : std::min(few ? kMaxSegments : 16, device.multiprocessors / tiles);
  const int64_t seen = shape.window == 0 ? max_positions : std::min<int64_t>(max_positions, shape.window);
  const int64_t chunks = (seen + chunk - 2) / chunk + 1;  // at most
  plan.max_segments = static_cast<int>(std::clamp<int64_t>(chunks * chunk / kSegmentPositions, 1, std::max(1, wanted)));
  SizeShared(plan, (chunks + plan.max_segments - 1) / plan.max_segments, device);
  const int64_t items = int64_t{max_rows} * tiles * (plan.clusters ? kCluster : plan.max_segments);
  const int64_t blocks = int64_t{few && !plan.clusters ? 1 : 2} * device.multiprocessors;
  plan.grid = static_cast<unsigned>(std::min(items, std::max<int64_t>(kCluster, blocks / kCluster * kCluster)));
  if (!plan.clusters) {
    const size_t partial = static_cast<size_t>(kTileHeads * (shape.head_dim + 2)) * sizeof(float);
    plan.workspace_bytes = kCounterBytes + static_cast<size_t>(items) * partial;
  }
  return plan;
}

void AttentionDecode(gpuStream stream, const AttentionDecodePlan& plan, const AttentionDecodeArgs& args,
                     bool dependent) {
  using namespace decode;
  KernelArgs kernel_args{.a = args,
                         .heads = plan.shape.heads,
                         .kv_heads = plan.shape.kv_heads,
                         .head_tiles = HeadTiles(plan.shape),
                         .max_rows = plan.max_rows,
                         .window = plan.shape.window,
                         .max_segments = plan.max_segments,
                         .slots = plan.ring_slots,
                         .counters = nullptr,
                         .partials = nullptr};
  if (!plan.clusters) {
    auto* workspace = static_cast<std::byte*>(args.workspace);
    kernel_args.counters = reinterpret_cast<uint32_t*>(workspace);
    kernel_args.partials = reinterpret_cast<float*>(workspace + kCounterBytes);
  }
  kernel_args.a.cache.is_bf16 = plan.shape.is_bf16;
  LaunchShape shape;
  shape.grid_x = plan.grid;
  shape.block = kThreads;
  shape.shared_bytes = plan.shared_bytes;
  shape.dependent = dependent;
  shape.cluster = plan.clusters ? kCluster : 1;
  ForShape(plan.shape, [&]<int kDim, bool kBf16>() {
    const auto kernel = plan.clusters ? AttentionDecodeClusterKernel<kDim, kBf16> : AttentionDecodeKernel<kDim, kBf16>;
    Launch("attention_decode", kernel, shape, stream, kernel_args);
  });
}

}  // namespace lapidary::gpu
