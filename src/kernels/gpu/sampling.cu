#include "kernels/gpu/sampling.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/sampling_select.h"

namespace lapidary::gpu {
namespace sample {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
// Groups whose best are looked at first for top-p.
constexpr int kLikelyGroups = 64;
// A weight below exp(-kNegligible) of the best, even 262,144 times over, is lost in the rounding of a double sum.
constexpr double kNegligible = 50.0;

// a * b rounded, never fused with what is added to it: as the host does it.
__device__ __forceinline__ double Product(double a, double b) {
#if defined(LAPIDARY_GPU_EMULATION)
  return a * b;
#else
  return __dmul_rn(a, b);
#endif
}

// Finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
__device__ __forceinline__ uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Equals UniformDraw of sampling/sampler.h.
__device__ __forceinline__ double UniformDraw(uint64_t seed, uint64_t counter) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t bits = Mix(Mix(seed + kGolden) + (counter + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

__global__ void __launch_bounds__(kThreads) GroupMaximaKernel(const LogitsView logits, float* maxima, int groups) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int row = static_cast<int>(blockIdx.y), group = static_cast<int>(blockIdx.x * kWarps + WarpIndex());
  if (row >= *logits.count || group >= groups) return;
  const float* x = logits.data + row * logits.row_stride;
  const int64_t begin = static_cast<int64_t>(group) * kMaximaGroup + LaneIndex();
  float best = -INFINITY;
#pragma unroll
  for (int i = 0; i < kMaximaGroup; i += 32) {
    const float value = begin + i < logits.vocab ? x[begin + i] : -INFINITY;
    best = value > best ? value : best;
  }
  best = WarpMax(best);
  if (LaneIndex() == 0) maxima[static_cast<int64_t>(row) * groups + group] = best;
}

// The largest of the block's keys, in every thread. `warps`: [threads / 32] of shared memory.
__device__ __forceinline__ uint64_t BlockMax(uint64_t key, uint64_t* warps) {
  key = WarpMax(key);
  __syncthreads();
  if (LaneIndex() == 0) warps[WarpIndex()] = key;
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / 32; ++w) key = warps[w] > key ? warps[w] : key;
  return key;
}

// The key of the best token, at or above kLowestKey, or less where there is no candidate.
__device__ __forceinline__ uint64_t BestToken(const float* logits, int vocab, const float* maxima, int groups,
                                              uint64_t* warps) {
  uint64_t best = 0;
  for (int g = static_cast<int>(threadIdx.x); g < groups; g += static_cast<int>(blockDim.x)) {
    const uint64_t key = Key(maxima[g], g);
    best = key > best ? key : best;
  }
  const int group = IdOf(BlockMax(best, warps));
  best = 0;
  const int begin = group * kMaximaGroup, end = begin + kMaximaGroup < vocab ? begin + kMaximaGroup : vocab;
  for (int id = begin + static_cast<int>(threadIdx.x); id < end; id += static_cast<int>(blockDim.x)) {
    const uint64_t key = Key(logits[id], id);
    best = key > best ? key : best;
  }
  return BlockMax(best, warps);
}

__global__ void __launch_bounds__(kThreads)
    ArgmaxKernel(const LogitsView logits, const float* maxima, int groups, int32_t* ids) {
  LAPIDARY_SHARED(warps, uint64_t[kWarps]);
  DependentsMayStart();
  WaitForEarlierKernels();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= *logits.count) return;
  const uint64_t best = BestToken(logits.data + row * logits.row_stride, static_cast<int>(logits.vocab),
                                  maxima + static_cast<int64_t>(row) * groups, groups, warps);
  if (threadIdx.x == 0) ids[row] = best >= kLowestKey ? IdOf(best) : 0;
}

// Suppression, bias and penalties of one row, in that order.
__global__ void __launch_bounds__(kThreads) EditKernel(const SampleArgs args) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  if (row >= *args.logits.count) return;
  const SamplingRow& p = args.rows[row];
  float* logits = args.logits.data + row * args.logits.row_stride;
  for (int i = p.suppress_begin + thread; i < p.suppress_end; i += kThreads) logits[args.suppress[i]] = -INFINITY;
  __syncthreads();
  for (int i = p.bias_begin + thread; i < p.bias_end; i += kThreads) {
    const int32_t id = args.bias[i].id;
    bool is_first = true;
    for (int j = p.bias_begin; j < i; ++j) is_first = is_first && args.bias[j].id != id;
    if (!is_first) continue;
    float value = logits[id];
    for (int j = i; j < p.bias_end; ++j) {
      if (args.bias[j].id == id) value += args.bias[j].bias;
    }
    logits[id] = value;
  }
  __syncthreads();
  for (int i = p.touched_begin + thread; i < p.touched_end; i += kThreads) {
    const TouchedToken touched = args.touched[i];
    double value = logits[touched.id];
    if (touched.seen != 0) {
      value = value > 0 ? value / p.repetition_penalty : Product(value, p.repetition_penalty);
    }
    if (touched.answer_count > 0) value -= p.presence_penalty + Product(p.frequency_penalty, touched.answer_count);
    logits[touched.id] = static_cast<float>(value);
  }
}

__device__ __forceinline__ bool UsesTopK(const SamplingRow& p, int64_t vocab) { return p.top_k > 0 && p.top_k < vocab; }

// The lowest key that counts where there is no top-k. min-p comes later where top-p does.
__device__ __forceinline__ uint64_t LowestWithoutTopK(const SamplingRow& p, double top) {
  double bound = top - Product(kNegligible, p.temperature);
  if (p.top_p >= 1 && top + p.min_logit > bound) bound = top + p.min_logit;
  return LowestKeyAtLeast(bound);
}

// The largest of the groups' maxima. `warps`: as for BlockMax.
__device__ __forceinline__ float TopOf(const float* maxima, int groups, uint64_t* warps) {
  uint64_t best = 0;
  for (int g = static_cast<int>(threadIdx.x); g < groups; g += static_cast<int>(blockDim.x)) {
    const uint64_t key = Key(maxima[g], g);
    best = key > best ? key : best;
  }
  return LogitOf(BlockMax(best, warps));
}

// The weight of each group in the rows that have no top-k. sums [rows, groups].
__global__ void __launch_bounds__(kThreads)
    GroupWeightsKernel(const SampleArgs args, const float* maxima, double* sums, int groups) {
  LAPIDARY_SHARED(warps, uint64_t[kWarps]);
  DependentsMayStart();
  WaitForEarlierKernels();
  const int row = static_cast<int>(blockIdx.y), group = static_cast<int>(blockIdx.x * kWarps + WarpIndex());
  if (row >= *args.logits.count) return;
  const SamplingRow& p = args.rows[row];
  if (p.temperature == 0 || UsesTopK(p, args.logits.vocab)) return;
  const RowContext context{args.logits.data + row * args.logits.row_stride,
                           static_cast<int>(args.logits.vocab),
                           groups,
                           TopOf(maxima + static_cast<int64_t>(row) * groups, groups, warps),
                           p.temperature,
                           nullptr};
  if (group >= groups) return;
  const uint64_t low = LowestWithoutTopK(p, context.top);
  double sum = 0.0;
  for (int i = static_cast<int>(LaneIndex()); i < kMaximaGroup; i += 32) {
    const int id = group * kMaximaGroup + i;
    if (id < context.vocab && Key(context.logits[id], id) >= low) sum += context.Weight(context.logits[id]);
  }
  sum = WarpSum(sum);
  if (LaneIndex() == 0) sums[static_cast<int64_t>(row) * groups + group] = sum;
}

// Walks through `count` weights in order, by one thread: the first whose running sum passes `target`, else the last
// that is not 0.
struct Walk {
  double sum;
  int at = 0;
  double before = 0.0;  // of the ones before `at`

  template <typename Weight>
  __device__ __forceinline__ void Run(int count, double target, const Weight& weight) {
    for (int i = 0; i < count; ++i) {
      const double w = weight(i);
      if (w == 0.0) continue;
      at = i;
      before = sum;
      sum += w;
      if (target < sum) return;
    }
  }
};

// Each lane's share of the groups' weights, by one warp. Returns the sum of the lanes up to this one; `own`: of this
// lane's groups.
__device__ __forceinline__ double LaneSums(const double* sums, int groups, double* own) {
  const int each = (groups + 31) / 32, begin = static_cast<int>(LaneIndex()) * each;
  *own = 0.0;
  for (int g = begin; g < begin + each && g < groups; ++g) *own += sums[g];
  double until = 0.0;
  for (int lane = 0; lane < 32; ++lane) {
    const double other = WarpShuffle(*own, lane);
    if (lane <= static_cast<int>(LaneIndex())) until += other;
  }
  return until;
}

// Draws among all candidates from `low` on in order of ids, `uniform` of the total along.
__device__ __forceinline__ int32_t DrawById(const RowContext& row, const double* sums, uint64_t low, double uniform) {
  SelectShared& shared = *row.shared;
  if (WarpIndex() == 0) {
    const int lane = static_cast<int>(LaneIndex()), each = (row.groups + 31) / 32;
    double own;
    const double until = LaneSums(sums, row.groups, &own), before_lane = WarpShuffleUp(until, 1);
    const double target = uniform * WarpShuffle(until, 31);
    const uint32_t passed = Ballot(own != 0.0 && target < until), nonzero = Ballot(own != 0.0);
    // The first lane that passes the target, else the last that has any weight.
    int chosen = 0;
    for (int i = 31; i >= 0; --i) {
      if (passed != 0 ? (passed >> i & 1u) != 0 : (nonzero >> i & 1u) != 0) {
        chosen = i;
        if (passed == 0) break;
      }
    }
    if (lane == chosen) {
      Walk walk{lane == 0 ? 0.0 : before_lane};
      const int begin = lane * each, count = begin + each < row.groups ? each : row.groups - begin;
      walk.Run(count, target, [&](int i) { return sums[begin + i]; });
      shared.listed = begin + walk.at;
      shared.weight = walk.before;
      shared.weights[kMaximaGroup] = target;
    }
  }
  __syncthreads();
  const int begin = shared.listed * kMaximaGroup;
  const double before = shared.weight, target = shared.weights[kMaximaGroup];
  for (int i = static_cast<int>(threadIdx.x); i < kMaximaGroup; i += kSelectThreads) {
    const int id = begin + i;
    const bool counts = id < row.vocab && Key(row.logits[id], id) >= low;
    shared.weights[i] = counts ? row.Weight(row.logits[id]) : 0.0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    Walk walk{before};
    walk.Run(kMaximaGroup, target, [&](int i) { return shared.weights[i]; });
    shared.listed = begin + walk.at;
  }
  __syncthreads();
  return shared.listed;
}

// The total weight of the groups, in every thread.
__device__ __forceinline__ double TotalOf(const RowContext& row, const double* sums) {
  if (WarpIndex() == 0) {
    double own;
    const double total = WarpShuffle(LaneSums(sums, row.groups, &own), 31);
    if (LaneIndex() == 0) row.shared->weight = total;
  }
  __syncthreads();
  const double total = row.shared->weight;
  __syncthreads();
  return total;
}

// The largest logit of the `rank`-th best group as a key, from 1 on; where there are fewer groups, the lowest key.
__device__ __forceinline__ uint64_t GroupOfRank(const RowContext& row, int rank) {
  if (rank > row.groups) return kLowestKey;
  SelectShared& shared = *row.shared;
  for (int g = static_cast<int>(threadIdx.x); g < row.groups; g += kSelectThreads) {
    shared.keys[g] = static_cast<uint64_t>(shared.maxima[g]) << 32;
  }
  SortDown(shared.keys, row.groups);
  const uint64_t key = shared.keys[rank - 1];
  __syncthreads();
  return key < kLowestKey ? kLowestKey : key;
}

// The total weight of the `count` listed candidates, added in order of rank; in every thread.
__device__ __forceinline__ double TotalListed(const RowContext& row, int count) {
  WeighListed(row, count);
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (int i = 0; i < count; ++i) total += row.shared->weights[i];
    row.shared->weight = total;
  }
  __syncthreads();
  const double total = row.shared->weight;
  __syncthreads();
  return total;
}

// The candidates with keys from `low` on, `count` of them: where the walk down their ranks meets `share` of their
// weight.
__device__ __forceinline__ uint64_t SelectShare(const RowContext& row, uint64_t low, int count, Goal::Kind kind,
                                                double share) {
  constexpr uint64_t kAll = ~uint64_t{0};
  if (count <= kListedCandidates) {
    const int listed = List(row, low, kAll);
    return WalkListed(row, listed, 0.0, {kind, share * TotalListed(row, listed)}).key;
  }
  const double total = Measure(row, low, kAll, true).weight;
  return Select(row, low, low, {kind, share * total}).key;
}

// Sampler::Draw, with the same names.
__device__ __forceinline__ int32_t Draw(const RowContext& row, const SamplingRow& p, const double* sums, int32_t best) {
  constexpr uint64_t kAll = ~uint64_t{0};
  const double uniform = UniformDraw(p.seed, p.draw);
  uint64_t low;
  if (UsesTopK(p, row.vocab)) {
    low = Select(row, kLowestKey, GroupOfRank(row, p.top_k), {Goal::kCount, static_cast<double>(p.top_k)}).key;
    if (p.top_p < 1) low = SelectShare(row, low, p.top_k, Goal::kWeightReaches, p.top_p);
  } else {
    low = LowestWithoutTopK(p, row.top);
    if (p.top_p >= 1) return DrawById(row, sums, low, uniform);
    const double total = TotalOf(row, sums);
    low = Select(row, low, GroupOfRank(row, kLikelyGroups), {Goal::kWeightReaches, p.top_p * total}).key;
  }
  const uint64_t min_key = LowestKeyAtLeast(row.top + p.min_logit);
  if (low < min_key) low = min_key;
  const int count = Measure(row, low, kAll, false).count;
  if (count == 0) return best;
  return IdOf(SelectShare(row, low, count, Goal::kWeightPasses, uniform));
}

__global__ void __launch_bounds__(kSelectThreads)
    ChooseKernel(const SampleArgs args, const float* maxima, const double* sums, int groups) {
  LAPIDARY_SHARED(warps, uint64_t[kSelectWarps]);
  DependentsMayStart();
  WaitForEarlierKernels();
  const int row = static_cast<int>(blockIdx.x), vocab = static_cast<int>(args.logits.vocab);
  if (row >= *args.logits.count) return;
  const SamplingRow& p = args.rows[row];
  const float* logits = args.logits.data + row * args.logits.row_stride;
  const float* row_maxima = maxima + static_cast<int64_t>(row) * groups;
  const uint64_t best = BestToken(logits, vocab, row_maxima, groups, warps);
  int32_t id = best >= kLowestKey ? IdOf(best) : 0;
  if (p.temperature != 0 && best >= kLowestKey) {
    auto* shared = DynamicShared<SelectShared>();
    for (int g = static_cast<int>(threadIdx.x); g < groups; g += kSelectThreads) {
      shared->maxima[g] = OrderedBits(row_maxima[g]);
    }
    __syncthreads();
    id = Draw({logits, vocab, groups, LogitOf(best), p.temperature, shared}, p,
              sums + static_cast<int64_t>(row) * groups, id);
  }
  if (threadIdx.x == 0) args.ids[row] = id;
}

int CheckedGroups(int64_t vocab) {
  if (vocab < 1 || vocab > kMaxVocab) {
    Throw(ErrorKind::kInvalidArgument,
          "vocabulary: found " + std::to_string(vocab) + " tokens, wanted 1 to " + std::to_string(kMaxVocab));
  }
  return static_cast<int>(MaximaGroups(vocab));
}

LaunchShape GroupShape(int groups, int max_rows, bool dependent) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((groups + kWarps - 1) / kWarps);
  shape.grid_y = static_cast<unsigned>(max_rows);
  shape.block = kThreads;
  shape.dependent = dependent;
  return shape;
}

LaunchShape RowShape(int max_rows, int threads, size_t shared_bytes, bool dependent) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(max_rows);
  shape.block = static_cast<unsigned>(threads);
  shape.shared_bytes = shared_bytes;
  shape.dependent = dependent;
  return shape;
}

}  // namespace
}  // namespace sample

void GroupMaxima(gpuStream stream, const LogitsView& logits, int max_rows, float* maxima, bool dependent) {
  const int groups = sample::CheckedGroups(logits.vocab);
  Launch("group_maxima", sample::GroupMaximaKernel, sample::GroupShape(groups, max_rows, dependent), stream, logits,
         maxima, groups);
}

void Argmax(gpuStream stream, const LogitsView& logits, const float* maxima, int max_rows, int32_t* ids,
            bool dependent) {
  const int groups = sample::CheckedGroups(logits.vocab);
  Launch("argmax", sample::ArgmaxKernel, sample::RowShape(max_rows, sample::kThreads, 0, dependent), stream, logits,
         maxima, groups, ids);
}

size_t SampleWorkspaceBytes(int64_t vocab, int max_rows) {
  return static_cast<size_t>(max_rows) * static_cast<size_t>(sample::CheckedGroups(vocab)) *
         (sizeof(double) + sizeof(float));
}

void Sample(gpuStream stream, const SampleArgs& args, int max_rows, bool dependent) {
  const int groups = sample::CheckedGroups(args.logits.vocab);
  auto* sums = static_cast<double*>(args.workspace);
  const float* maxima = args.maxima;
  if (maxima == nullptr) {
    auto* own = reinterpret_cast<float*>(sums + static_cast<size_t>(max_rows) * static_cast<size_t>(groups));
    Launch("sampling_edits", sample::EditKernel, sample::RowShape(max_rows, sample::kThreads, 0, dependent), stream,
           args);
    GroupMaxima(stream, args.logits, max_rows, own, true);
    maxima = own;
    dependent = true;
  }
  Launch("group_weights", sample::GroupWeightsKernel, sample::GroupShape(groups, max_rows, dependent), stream, args,
         maxima, sums, groups);
  Launch("choose", sample::ChooseKernel,
         sample::RowShape(max_rows, sample::kSelectThreads, sizeof(sample::SelectShared), true), stream, args, maxima,
         static_cast<const double*>(sums), groups);
}

}  // namespace lapidary::gpu
