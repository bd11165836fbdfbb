#pragma once

#include <cmath>

#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/kv_cache.h"

namespace lapidary::gpu {

template <int kCount>
struct alignas(4 * kCount) FloatVector {
  float v[kCount];
};

// One head's vector of a row in the registers of one warp: elements j and j + kDim / 2 lie in the same lane.
template <int kDim>
struct HeadVector {
  static constexpr int kHalf = kDim / 2;
  static constexpr int kWide = kDim >= 256 ? 4 : (kDim >= 128 ? 2 : 1);  // elements side by side
  static constexpr int kLoads = kHalf > 32 * kWide ? kHalf / (32 * kWide) : 1;
  using Wide = FloatVector<kWide>;

  Wide low[kLoads], high[kLoads];  // high: kHalf elements further

  // Element of low[i].v[0]; only those below kHalf exist.
  static __device__ __forceinline__ int Index(int i) { return (i * 32 + static_cast<int>(LaneIndex())) * kWide; }

  __device__ __forceinline__ void Load(const float* x) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      low[i] = high[i] = Wide{};
      if (Index(i) >= kHalf) continue;
      low[i] = *reinterpret_cast<const Wide*>(x + Index(i));
      high[i] = *reinterpret_cast<const Wide*>(x + Index(i) + kHalf);
    }
  }

  // The elements from `column` on of row `row`.
  __device__ __forceinline__ void Load(const RowInput& x, int row, int column) {
    const int64_t at = row * x.stride + column;
    Load(x.values + at);
    if (x.rest_parts == 0) return;
    const float* part = x.rest + (x.rest_parts - 1) * x.rest_stride + at;
    HeadVector rest;
    rest.Load(part);
#pragma unroll 2
    for (int p = x.rest_parts - 1; p > 0; --p) {
      part -= x.rest_stride;
      HeadVector next;
      next.Load(part);
      rest.Add(next);
    }
    Add(rest);
  }

  __device__ __forceinline__ void Add(const HeadVector& other) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        low[i].v[j] += other.low[i].v[j];
        high[i].v[j] += other.high[i].v[j];
      }
    }
  }

  // x * (mean(x^2) + eps)^-0.5.
  __device__ __forceinline__ void Norm(float eps) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) squares += low[i].v[j] * low[i].v[j] + high[i].v[j] * high[i].v[j];
    }
    const float scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(kDim) + eps);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        low[i].v[j] *= scale;
        high[i].v[j] *= scale;
      }
    }
  }

  __device__ __forceinline__ void Multiply(const HeadVector& weight) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        low[i].v[j] *= weight.low[i].v[j];
        high[i].v[j] *= weight.high[i].v[j];
      }
    }
  }

  // The cosines and sines of the lane's pairs (i, j); those that are not rotated turn by nothing.
  struct Rotation {
    float cos[kLoads][kWide], sin[kLoads][kWide];

    __device__ __forceinline__ void Load(const RopeTableView& rope, int row) {
      const int64_t at = static_cast<int64_t>(row) * rope.pairs;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          const int pair = Index(i) + j;
          cos[i][j] = pair < rope.pairs ? rope.cos[at + pair] : 1.0f;
          sin[i][j] = pair < rope.pairs ? rope.sin[at + pair] : 0.0f;
        }
      }
    }
  };

  __device__ __forceinline__ void Rotate(const Rotation& by) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        const float a = low[i].v[j], b = high[i].v[j], c = by.cos[i][j], s = by.sin[i][j];
        low[i].v[j] = a * c - b * s;
        high[i].v[j] = b * c + a * s;
      }
    }
  }
};

}  // namespace lapidary::gpu
