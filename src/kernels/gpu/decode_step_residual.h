#pragma once

#include "kernels/gpu/decode_step_block.h"

// Parts of decode_step.cu: the residual stream, which every block keeps whole. A leaf is 4 values; sums over a row are
// a binary tree over its leaves in order, whichever threads have them.
namespace lapidary::gpu::decode_step {

// A branch that has not joined the residual stream yet.
struct Branch {
  const float* cells;  // of row 0: [parts, hidden]
  int64_t row_stride;
  int parts;
  const float* norm;
  float scale;  // of the stream, once it has joined
};

// The leaves of a thread: leaf first + i of a row.
template <int kRowSlots>
struct Leaves {
  static constexpr int kRowThreads = kConsumers / kRowSlots;
  static constexpr int kCount = kDecodeStepWidth / 4 / kRowThreads;  // a thread's
  static constexpr int kRowWarps = kConsumerWarps / kRowSlots;

  int row, first;

  __device__ __forceinline__ explicit Leaves(int thread)
      : row(thread / kRowThreads), first(thread % kRowThreads * kCount) {}
};

__device__ __forceinline__ float SquaresOf(const float4& x) {
  return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}

template <int kCount>
__device__ __forceinline__ float TreeSum(const float* values) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    return TreeSum<kCount / 2>(values) + TreeSum<kCount / 2>(values + kCount / 2);
  }
}

// Adds up the warp's squares into squares[warp].
template <int kCount>
__device__ __forceinline__ void StoreSquares(const float4 (&leaves)[kCount], int thread, float* squares) {
  float each[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) each[i] = SquaresOf(leaves[i]);
  float sum = TreeSum<kCount>(each);
#pragma unroll
  for (int mask = 1; mask < kWarpSize; mask *= 2) sum += WarpShuffleXor(sum, mask);
  if (thread % kWarpSize == 0) squares[thread / kWarpSize] = sum;
}

// (mean of a row's squares + eps)^-0.5.
template <int kRowSlots>
__device__ __forceinline__ float NormFactor(const Context<kRowSlots>& c, const float* squares, int row) {
  constexpr int kWarps = Leaves<kRowSlots>::kRowWarps;
  const float sum = TreeSum<kWarps>(squares + row * kWarps);
  return 1.0f / sqrtf(sum / static_cast<float>(c.args.hidden) + c.args.eps);
}

// The branch's leaves, their parts added in order.
template <int kParts, int kRowSlots>
__device__ __forceinline__ void AwaitBranch(Context<kRowSlots>& c, const Branch& branch,
                                            float4 (&y)[Leaves<kRowSlots>::kCount]) {
  constexpr int kLeaves = Leaves<kRowSlots>::kCount;
  constexpr int kCells = kRowSlots == 1 ? 16 : 8,
                kAtOnce = kLeaves * kParts < kCells ? kLeaves : kCells / kParts;  // leaves
  const Leaves<kRowSlots> own(c.thread);
  const float* row = branch.cells + own.row * branch.row_stride;
#pragma unroll
  for (int begin = 0; begin < kLeaves; begin += kAtOnce) {
    const float* from[kAtOnce * kParts];
    Cells4 values[kAtOnce * kParts];
#pragma unroll
    for (int i = 0; i < kAtOnce * kParts; ++i)
      from[i] = row + i % kParts * c.args.hidden + (own.first + begin + i / kParts) * 4;
    if (own.row < c.args.rows && (own.first + begin) * 4 < c.args.hidden) {
      // Rows are of whole batches, but for the last, whose leaves beyond the end lie in the next part or buffer.
#pragma unroll
      for (int i = 0; i < kAtOnce * kParts; ++i) {
        if ((own.first + begin + i / kParts) * 4 >= c.args.hidden) from[i] = from[i % kParts];
      }
      AwaitCells4(from, c.patience, values);
    } else {
#pragma unroll
      for (Cells4& value : values) value = Cells4{};
    }
#pragma unroll
    for (int leaf = 0; leaf < kAtOnce; ++leaf) {
      float4 sum = values[leaf * kParts].Values();
#pragma unroll
      for (int part = 1; part < kParts; ++part) {
        const float4 more = values[leaf * kParts + part].Values();
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
      }
      y[begin + leaf] = sum;
    }
  }
}

// Sends for the weight of the next norm (nullptr: none), into shared.norm; whoever reads it comes after CpAsyncWait<0>
// and a barrier.
template <int kRowSlots>
__device__ __forceinline__ void FetchNorm(const Context<kRowSlots>& c, const float* weight) {
  if (weight == nullptr) return;
  for (int i = c.thread * 4; i < c.args.hidden; i += kConsumers * 4) CpAsync16(&c.shared.norm[i], weight + i);
  CpAsyncCommit();
}

// h = (h + norm(branch)) * scale in shared memory, and the warps' squares of h; whoever reads them next comes after a
// barrier.
template <int kRowSlots>
__device__ __forceinline__ void Join(Context<kRowSlots>& c, const Branch& branch) {
  const Leaves<kRowSlots> own(c.thread);
  constexpr int kLeaves = Leaves<kRowSlots>::kCount;
  float4 y[kLeaves];
  const bool is_row = own.row < c.args.rows;
  // One row: registers are free to have it on the way.
  float4 early[kRowSlots == 1 ? kLeaves : 1];
  if constexpr (kRowSlots == 1) {
#pragma unroll
    for (int i = 0; i < kLeaves; ++i) {
      const int k = (own.first + i) * 4;
      early[i] =
          k < c.args.hidden ? *reinterpret_cast<const float4*>(branch.norm + k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  switch (branch.parts) {
    case 1:
      AwaitBranch<1>(c, branch, y);
      break;
    case 2:
      AwaitBranch<2>(c, branch, y);
      break;
    case 4:
      AwaitBranch<4>(c, branch, y);
      break;
    default:
      AwaitBranch<kMostParts>(c, branch, y);
  }
#pragma unroll
  for (int i = 0; i < kLeaves; ++i) {
    if (!is_row || (own.first + i) * 4 >= c.args.hidden) y[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  StoreSquares(y, c.thread, c.shared.squares[0]);
  c.Sync();
  const float factor = NormFactor(c, c.shared.squares[0], own.row);
#pragma unroll
  for (int i = 0; i < kLeaves; ++i) {
    const int k = (own.first + i) * 4;
    if (!is_row || k >= c.args.hidden) continue;
    const float4 weight =
        kRowSlots == 1 ? early[kRowSlots == 1 ? i : 0] : *reinterpret_cast<const float4*>(branch.norm + k);
    float4* at = reinterpret_cast<float4*>(&c.shared.hidden[own.row][k]);
    const float4 h = *at;
    y[i].x = (h.x + y[i].x * factor * weight.x) * branch.scale;
    y[i].y = (h.y + y[i].y * factor * weight.y) * branch.scale;
    y[i].z = (h.z + y[i].z * factor * weight.z) * branch.scale;
    y[i].w = (h.w + y[i].w * factor * weight.w) * branch.scale;
    *at = y[i];
  }
  StoreSquares(y, c.thread, c.shared.squares[1]);
}

// The same for the embedding, with which the stream begins.
template <int kRowSlots>
__device__ __forceinline__ void Begin(Context<kRowSlots>& c) {
  const Leaves<kRowSlots> own(c.thread);
  constexpr int kLeaves = Leaves<kRowSlots>::kCount;
  float4 h[kLeaves];
#pragma unroll
  for (int i = 0; i < kLeaves; ++i) {
    const int k = (own.first + i) * 4;
    h[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (own.row >= c.args.rows || k >= c.args.hidden) continue;
    h[i] = *reinterpret_cast<const float4*>(c.args.embedding + int64_t{own.row} * c.args.hidden + k);
    *reinterpret_cast<float4*>(&c.shared.hidden[own.row][k]) = h[i];
  }
  StoreSquares(h, c.thread, c.shared.squares[1]);
}

// After a barrier after Join or Begin: notes a stream that is not finite.
template <int kRowSlots>
__device__ __forceinline__ void CheckStream(const Context<kRowSlots>& c, int place) {
  const int row = c.thread;
  if (blockIdx.x != 0 || row >= c.args.rows) return;
  constexpr int kWarps = Leaves<kRowSlots>::kRowWarps;
  const float sum = TreeSum<kWarps>(c.shared.squares[1] + row * kWarps);
  if (!(fabsf(sum) <= 3.402823466e38f) && *c.args.bad_place == 0) *c.args.bad_place = place;
}

}  // namespace lapidary::gpu::decode_step
