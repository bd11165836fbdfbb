#include "kernels/gpu/attention_decode.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/gpu/attention_decode_merge.h"
#include "kernels/gpu/attention_decode_segments.h"
#include "kernels/gpu/attention_decode_tile.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/row_vectors.h"

// One block takes up to 8 query heads of one K/V head of one row (a tile) over one segment of the row's context. The
// segment passes through a ring of slots in shared memory, a chunk of keys and a chunk of values in turn. Scores: each
// warp multiplies 8 positions and a part of the head's columns. Values: each warp has columns of its own and all
// positions. Both are tensor core products whose 16 rows are the 8 heads' first terms, then their second terms; a
// product of its own, half empty, takes the third terms. Segments are merged by whichever block comes last, in order of
// the segments.
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
  QueryPart<kDim, kBf16> query;
  query.Load(shared->query);
  const int chunks = s.end - s.begin;
  for (int c = 0; c < chunks; ++c) {
    float* scores = shared->scores[c % 2];
    Scores<kDim, kBf16>(ring.Next(), query, scores);
    // Of this chunk the values, of the next one the keys.
    ring.Wait(c + 1 < chunks ? 2 * c + 3 : 2 * c + 2);
    __syncthreads();
    // All warps are done with these keys and with the values before them.
    ring.Fill(args, s, 2 * c + 1, s.end);
    WeightFragments weights[T::kSteps];
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
#pragma unroll
    for (int i = 0; i < kCount; i += 2) Store2(out, at + i, values.v[i], values.v[i + 1]);
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
  float* own = partials.Partial(s.index);
  ForValues<kDim>(state, [&](int head, int column, const FloatVector<2>& x) {
    *reinterpret_cast<FloatVector<2>*>(own + head * kDim + column) = x;
  });
  if (WarpIndex() == 0 && LaneIndex() % 4 == 0) {
    own[kTileHeads * kDim + LaneIndex() / 4] = state.max;
    own[kTileHeads * (kDim + 1) + LaneIndex() / 4] = state.sum;
  }
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

// Takes one part of the step after the other. Before the first one the block waits for earlier kernels, with all under
// way that does not depend on them.
template <int kDim, bool kBf16>
__global__ void __launch_bounds__(kThreads, 2) AttentionDecodeKernel(const KernelArgs args) {
  using T = Traits<kDim, kBf16>;
  DependentsMayStart();
  auto* shared = DynamicShared<Shared<kDim, kBf16>>();
  auto* slots = reinterpret_cast<unsigned char*>(shared + 1);
  auto* items_before = reinterpret_cast<int*>(slots + args.slots * T::kSlotBytes);
  if (args.max_rows > kDecodeFewRows) CountItems<T::kChunk>(args, items_before);
  bool waited = false;
  RowPart part;
  for (int item = static_cast<int>(blockIdx.x); FindPart<T::kChunk>(args, items_before, item, part);
       item += static_cast<int>(gridDim.x)) {
    HeadVector<kDim> query_weight;
    query_weight.Load(args.a.q_weight);
    if (waited) __syncthreads();  // all are done with the part before
    const Segment s = SegmentOf<T::kChunk>(args, part);
    if (threadIdx.x == 0) shared->segment = s;
    Ring<kDim, kBf16> ring{slots, args.slots};
    if (!waited) {
      const int old_chunks = s.old_end / T::kChunk;
      ring.Fill(args, s, 0, old_chunks < s.end ? old_chunks : s.end);
      WaitForEarlierKernels();
      waited = true;
    }
    RawQuery<kDim> query;
    query.Load(args, s);
    ring.Fill(args, s, 0, s.end);
    PrepareQuery<kDim>(query, query_weight, args.a.eps, shared->query);
    State<T::kValueTiles> state;
    Attend<kDim, kBf16>(args, s, ring, shared, state);
    // From shared memory, so that what was not needed meanwhile has left the registers.
    Finish<kDim, kBf16>(args, shared->segment, shared, state);
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

// Ring and all take half of a multiprocessor where they can: then two blocks run there, or this kernel's beside those
// of the kernels before and after it, which begin early. No more than the longest segment takes.
void SizeShared(AttentionDecodePlan& plan, int64_t segment_chunks, const DeviceInfo& device) {
  int64_t fixed = 0, slot = 0;
  ForShape(plan.shape, [&]<int kDim, bool kBf16>() {
    fixed = static_cast<int64_t>(sizeof(Shared<kDim, kBf16>));
    slot = Traits<kDim, kBf16>::kSlotBytes;
  });
  if (plan.max_rows > kDecodeFewRows) fixed += (plan.max_rows + 1) * static_cast<int64_t>(sizeof(int));
  const int64_t all = device.shared_bytes_per_block, half = (all + kReservedShared) / 2 - kReservedShared;
  if (fixed + kLeastSlots * slot > all) {
    Throw(ErrorKind::kUnsupported, "attention over head_dim " + std::to_string(plan.shape.head_dim) + ": found " +
                                       std::to_string(all) + " bytes of shared memory in a block, wanted " +
                                       std::to_string(fixed + kLeastSlots * slot));
  }
  const int64_t slots = std::min({(half - fixed) / slot, 2 * segment_chunks, kMostSlots});
  plan.ring_slots = static_cast<int>(std::max(slots, kLeastSlots));
  plan.shared_bytes = static_cast<size_t>(fixed + plan.ring_slots * slot);
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
  // Few rows: enough segments to keep the whole device busy with one row. More rows do that by themselves.
  const int wanted = std::max(1, std::min(few ? kMaxSegments : 16, device.multiprocessors / tiles));
  const int64_t seen = shape.window == 0 ? max_positions : std::min<int64_t>(max_positions, shape.window);
  const int64_t chunks = (seen + chunk - 2) / chunk + 1;  // at most
  plan.max_segments =
      static_cast<int>(std::clamp<int64_t>(chunks * chunk / kSegmentPositions, 1, std::min(wanted, kMaxSegments)));
  SizeShared(plan, (chunks + plan.max_segments - 1) / plan.max_segments, device);
  const int64_t items = int64_t{max_rows} * tiles * plan.max_segments;
  plan.grid = static_cast<unsigned>(std::min<int64_t>(items, int64_t{few ? 1 : 2} * device.multiprocessors));
  plan.workspace_bytes = kCounterBytes + static_cast<size_t>(items) *
                                             static_cast<size_t>(kTileHeads * (shape.head_dim + 2)) * sizeof(float);
  return plan;
}

void AttentionDecode(gpuStream stream, const AttentionDecodePlan& plan, const AttentionDecodeArgs& args,
                     bool dependent) {
  using namespace decode;
  KernelArgs kernel_args{.a = args,
                         .heads = plan.shape.heads,
                         .kv_heads = plan.shape.kv_heads,
                         .head_tiles = HeadTiles(plan.shape),
                         .window = plan.shape.window,
                         .max_rows = plan.max_rows,
                         .max_segments = plan.max_segments,
                         .slots = plan.ring_slots,
                         .counters = static_cast<uint32_t*>(args.workspace),
                         .partials = reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + kCounterBytes)};
  kernel_args.a.cache.is_bf16 = plan.shape.is_bf16;
  LaunchShape shape;
  shape.grid_x = plan.grid;
  shape.block = kThreads;
  shape.shared_bytes = plan.shared_bytes;
  shape.dependent = dependent;
  ForShape(plan.shape, [&]<int kDim, bool kBf16>() {
    Launch("attention_decode", AttentionDecodeKernel<kDim, kBf16>, shape, stream, kernel_args);
  });
}

}  // namespace lapidary::gpu
