#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/sampling.h"

// Parts of sampling.cu: finding the best of a row's candidates by rank, count or weight. A block works on one row.
// Candidates are ranked by their key: the larger logit first, the lower id among equals.
namespace lapidary::gpu::sample {

inline constexpr int kSelectThreads = 512, kSelectWarps = kSelectThreads / 32;
inline constexpr int kMaxGroups = 1024;

// Rises with x; 0 for what is never a candidate: NaN and -inf.
__device__ __forceinline__ uint32_t OrderedBits(float x) {
  if (!(x > -INFINITY)) return 0;
  const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);  // -0 equals 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float FromOrderedBits(uint32_t bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}
__device__ __forceinline__ uint64_t Key(float x, int id) {
  return static_cast<uint64_t>(OrderedBits(x)) << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
__device__ __forceinline__ float LogitOf(uint64_t key) { return FromOrderedBits(static_cast<uint32_t>(key >> 32)); }
__device__ __forceinline__ int32_t IdOf(uint64_t key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}
// The lowest key of a candidate.
inline constexpr uint64_t kLowestKey = uint64_t{1} << 32;

// The lowest key of a logit that is not below `bound`.
__device__ __forceinline__ uint64_t LowestKeyAtLeast(double bound) {
  if (!(bound > -INFINITY)) return kLowestKey;
  float x = static_cast<float>(bound);
  uint32_t bits = OrderedBits(x);
  if (static_cast<double>(x) < bound) ++bits;  // the next larger float
  return static_cast<uint64_t>(bits == 0 ? 1 : bits) << 32;
}

struct SelectShared {
  uint64_t keys[kListedCandidates];
  double weights[kListedCandidates];
  uint32_t maxima[kMaxGroups];  // OrderedBits of the groups' largest logits
  double warp_weight[kSelectWarps];
  int warp_count[kSelectWarps];
  int listed;
  uint64_t key;
  double weight;
};

// A row and what its block knows of it.
struct RowContext {
  const float* logits;
  int vocab, groups;
  double top, temperature;
  SelectShared* shared;

  __device__ __forceinline__ double Weight(float logit) const {
    return exp((static_cast<double>(logit) - top) / temperature);
  }
};

struct Measured {
  int count = 0;
  double weight = 0.0;
};

// Calls f(key, logit) for the candidates with keys in [low, high), in a fixed order for each thread.
template <typename F>
__device__ __forceinline__ void ForCandidates(const RowContext& row, uint64_t low, uint64_t high, const F& f) {
  const int lane = static_cast<int>(LaneIndex());
  for (int g = static_cast<int>(WarpIndex()); g < row.groups; g += kSelectWarps) {
    if (row.shared->maxima[g] < static_cast<uint32_t>(low >> 32)) continue;
    float logits[kMaximaGroup / 32];
#pragma unroll
    for (int i = 0; i < kMaximaGroup / 32; ++i) {
      const int id = g * kMaximaGroup + i * 32 + lane;
      logits[i] = id < row.vocab ? row.logits[id] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kMaximaGroup / 32; ++i) {
      const uint64_t key = Key(logits[i], g * kMaximaGroup + i * 32 + lane);
      if (key >= low && key < high) f(key, logits[i]);
    }
  }
}

// How many candidates have keys in [low, high), and with `weigh` their weight: the same bits in every thread and run.
__device__ __forceinline__ Measured Measure(const RowContext& row, uint64_t low, uint64_t high, bool weigh) {
  Measured own;
  ForCandidates(row, low, high, [&](uint64_t, float logit) {
    ++own.count;
    if (weigh) own.weight += row.Weight(logit);
  });
  own.count = WarpSum(own.count);
  own.weight = WarpSum(own.weight);
  SelectShared& shared = *row.shared;
  __syncthreads();
  if (LaneIndex() == 0) {
    shared.warp_count[WarpIndex()] = own.count;
    shared.warp_weight[WarpIndex()] = own.weight;
  }
  __syncthreads();
  Measured all;
  for (int w = 0; w < kSelectWarps; ++w) {
    all.count += shared.warp_count[w];
    all.weight += shared.warp_weight[w];
  }
  return all;
}

// Orders keys[0, count) from the largest down; count <= kListedCandidates.
__device__ __forceinline__ void SortDown(uint64_t* keys, int count) {
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kSelectThreads) keys[i] = 0;
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kSelectThreads) {
        const int low = i / distance * (2 * distance) + i % distance, high = low + distance;
        const uint64_t a = keys[low], b = keys[high];
        if ((a < b) == ((low & run) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

// Lists the candidates with keys in [low, high), at most kListedCandidates of them, in order of rank; returns how many.
__device__ __forceinline__ int List(const RowContext& row, uint64_t low, uint64_t high) {
  SelectShared& shared = *row.shared;
  __syncthreads();
  if (threadIdx.x == 0) shared.listed = 0;
  __syncthreads();
  ForCandidates(row, low, high, [&](uint64_t key, float) {
    const int at = AtomicAdd(&shared.listed, 1);
    if (at < kListedCandidates) shared.keys[at] = key;
  });
  __syncthreads();
  const int count = shared.listed < kListedCandidates ? shared.listed : kListedCandidates;
  SortDown(shared.keys, count);
  return count;
}

// Fills weights for the first `count` listed candidates.
__device__ __forceinline__ void WeighListed(const RowContext& row, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSelectThreads) {
    row.shared->weights[i] = row.Weight(LogitOf(row.shared->keys[i]));
  }
  __syncthreads();
}

// Where a walk down the ranks ends.
struct Goal {
  enum Kind { kCount, kWeightReaches, kWeightPasses } kind;
  double value;  // of the sum up to and with the candidate: count >= value, weight >= value, or weight > value

  __device__ __forceinline__ bool IsMet(double sum) const { return kind == kWeightPasses ? sum > value : sum >= value; }
};

struct Selected {
  uint64_t key;   // of the candidate where the goal is met, or of the last one; 0 where there is none
  double weight;  // of all up to and with it; unless by count
};

// Walks down the list from `above`, the sum over the better candidates. One thread adds, in order of rank.
__device__ __forceinline__ Selected WalkListed(const RowContext& row, int count, double above, const Goal& goal) {
  SelectShared& shared = *row.shared;
  if (goal.kind != Goal::kCount) WeighListed(row, count);
  if (threadIdx.x == 0) {
    double sum = above;
    shared.key = 0;
    for (int i = 0; i < count; ++i) {
      const double weight = goal.kind == Goal::kCount ? 1.0 : shared.weights[i];
      if (weight == 0.0) continue;
      sum += weight;
      shared.key = shared.keys[i];
      if (goal.IsMet(sum)) break;
    }
    shared.weight = sum;
  }
  __syncthreads();
  return {shared.key, shared.weight};
}

// Walks down the ranks from the best candidate to where the goal is met, not below `low`. `guess`: a key above which
// the goal is likely to be met.
__device__ __forceinline__ Selected Select(const RowContext& row, uint64_t low, uint64_t guess, const Goal& goal) {
  const bool weigh = goal.kind != Goal::kCount;
  uint64_t high = ~uint64_t{0}, middle = guess > low ? guess : low;
  double above = 0.0;
  // The goal is met in [low, high), or at its end.
  for (;;) {
    const Measured upper = Measure(row, middle, high, weigh);
    const double sum = above + (weigh ? upper.weight : upper.count);
    if (goal.IsMet(sum) || middle == low) {
      low = middle;
      if (upper.count <= kListedCandidates) break;
    } else {
      above = sum;
      high = middle;
    }
    middle = low + (high - low) / 2;
  }
  return WalkListed(row, List(row, low, high), above, goal);
}

}  // namespace lapidary::gpu::sample
