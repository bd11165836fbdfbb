#pragma once

#include <cmath>

#include "kernels/gpu/attention_decode_segments.h"

// Parts of attention_decode.cu: merging the results of segments.
namespace lapidary::gpu::decode {

// Whether this block is the last of `expected` to come here; it then sees what the others wrote before they came. The
// counter is 0 before and after.
__device__ __forceinline__ bool ComesLast(uint32_t* counter, int expected, uint32_t* is_last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    ThreadFence();
    *is_last = AtomicAdd(counter, 1u) == static_cast<uint32_t>(expected - 1) ? 1u : 0u;
    if (*is_last != 0) *counter = 0;
    ThreadFence();
  }
  __syncthreads();
  return *is_last != 0;
}

// Weighs `count` partial results, result i at partial(i), by their maxima: merge_weight, merge_max and merge_sum of
// each head. One warp for each head, one lane for each result.
template <int kDim, bool kBf16, typename Partial>
__device__ __forceinline__ void WeighPartials(int count, const Partial& partial, Shared<kDim, kBf16>* shared) {
  const int lane = static_cast<int>(LaneIndex()), head = static_cast<int>(WarpIndex());
  float max = -INFINITY, sum = 0.0f;
  if (lane < count) {
    const float* end = partial(lane) + kTileHeads * kDim;
    max = end[head];
    sum = end[kTileHeads + head];
  }
  const float top = WarpMax(max), weight = expf(max - top);
  const float total = WarpSum(weight * sum);
  if (lane < count) shared->merge_weight[lane][head] = weight;
  if (lane == 0) {
    shared->merge_max[head] = top;
    shared->merge_sum[head] = total;
  }
  __syncthreads();
}

// Merges `count` <= kMaxGroups partial results in order. Calls store(head, column, values) for each four columns.
template <int kDim, bool kBf16, typename Partial, typename Store>
__device__ __forceinline__ void Merge(int count, const Partial& partial, Shared<kDim, kBf16>* shared,
                                      const Store& store) {
  constexpr int kVectors = kTileHeads * kDim / 4, kEach = kVectors > kThreads ? kVectors / kThreads : 1;
  constexpr int kAtOnce = kEach > 2 ? 4 : 8;
  const int thread = static_cast<int>(threadIdx.x);
  FloatVector<4> sum[kEach] = {};
  for (int begin = 0; begin < count; begin += kAtOnce) {
    FloatVector<4> x[kAtOnce][kEach];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* from = partial(begin + i < count ? begin + i : count - 1);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int at = thread + j * kThreads;
        x[i][j] = at < kVectors ? reinterpret_cast<const FloatVector<4>*>(from)[at] : FloatVector<4>{};
      }
    }
    // The first values are on their way meanwhile.
    if (begin == 0) WeighPartials<kDim, kBf16>(count, partial, shared);
    if (thread >= kVectors) return;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= count) break;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float weight = shared->merge_weight[begin + i][(thread + j * kThreads) * 4 / kDim];
#pragma unroll
        for (int l = 0; l < 4; ++l) sum[j].v[l] += weight * x[i][j].v[l];
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int at = (thread + j * kThreads) * 4;
    store(at / kDim, at % kDim, sum[j]);
  }
}

}  // namespace lapidary::gpu::decode
