#pragma once

#include "kernels/gpu/decode_step_input.h"

// Parts of decode_step.cu: the residual stream, which every block keeps whole. A place is 8 values of a row. The sum of
// a row's squares is that of each place, added up in a tree over places l, l + 32, ..., then in a tree over l: in this
// order whichever threads have them.
namespace lapidary::gpu::decode_step {

// A branch that has not joined the residual stream yet.
struct Branch {
  const float* cells;  // of row 0: [parts, hidden]
  int64_t row_stride;
  int parts;          // 1 for more than one row of the step
  const float* norm;  // its weight
  float scale;        // of the stream, once it has joined
};

// The places of a thread: first + 32 i of a row.
template <int kRowSlots>
struct Places {
  static_assert(kRowSlots == 1 || kRowSlots == kConsumerWarps);
  static constexpr int kCount = kRowSlots == 1 ? 1 : kDecodeStepWidth / 8 / kWarpSize;

  int row, first;

  __device__ __forceinline__ explicit Places(int thread)
      : row(kRowSlots == 1 ? 0 : thread / kWarpSize), first(kRowSlots == 1 ? thread : thread % kWarpSize) {}
  __device__ __forceinline__ int K(int i) const { return (first + i * kWarpSize) * 8; }
};

__device__ __forceinline__ float SquaresOf(const Eight& x) {
  return ((x.v[0] * x.v[0] + x.v[1] * x.v[1]) + (x.v[2] * x.v[2] + x.v[3] * x.v[3])) +
         ((x.v[4] * x.v[4] + x.v[5] * x.v[5]) + (x.v[6] * x.v[6] + x.v[7] * x.v[7]));
}

__device__ __forceinline__ float TreeSum(const float (&v)[8]) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

// Tells the squares of the thread's places, for SumOfSquares after a barrier.
template <int kRowSlots>
__device__ __forceinline__ void StoreSquares(Context<kRowSlots>& c, const Eight (&x)[Places<kRowSlots>::kCount],
                                             float* squares) {
  if constexpr (kRowSlots == 1) {
    squares[c.thread] = SquaresOf(x[0]);
  } else {
    float each[Places<kRowSlots>::kCount];
#pragma unroll
    for (int i = 0; i < Places<kRowSlots>::kCount; ++i) each[i] = SquaresOf(x[i]);
    const float sum = WarpSum(TreeSum(each));
    if (c.Lane() == 0) squares[c.Warp()] = sum;
  }
}

// Of a row, by whole warps.
template <int kRowSlots>
__device__ __forceinline__ float SumOfSquares(const Context<kRowSlots>& c, const float* squares, int row) {
  if constexpr (kRowSlots == 1) {
    float each[kConsumerWarps];
#pragma unroll
    for (int i = 0; i < kConsumerWarps; ++i) each[i] = squares[i * kWarpSize + c.Lane()];
    return WarpSum(TreeSum(each));
  } else {
    return squares[row];
  }
}

// (mean of a row's squares + eps)^-0.5.
template <int kRowSlots>
__device__ __forceinline__ float NormFactor(const Context<kRowSlots>& c, float sum_of_squares) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(c.args.hidden) + c.args.eps);
}

// The thread's places of the branch, whose parts are added in order.
template <int kRowSlots>
__device__ __forceinline__ void AwaitBranch(Context<kRowSlots>& c, const Branch& branch,
                                            Eight (&y)[Places<kRowSlots>::kCount]) {
  constexpr int kPlaces = Places<kRowSlots>::kCount, kParts = kRowSlots == 1 ? kMostParts : 1;
  const Places<kRowSlots> own(c.thread);
  const float* row = branch.cells + own.row * branch.row_stride;
  const float* from[kPlaces * kParts * 2];
  bool wanted[kPlaces * kParts * 2];
  Cells4 values[kPlaces * kParts * 2];
#pragma unroll
  for (int i = 0; i < kPlaces * kParts * 2; ++i) {
    const int part = i / 2 % kParts, k = own.K(i / 2 / kParts);
    from[i] = row + part * c.args.hidden + k + i % 2 * 4;
    wanted[i] = own.row < c.args.rows && k < c.args.hidden && part < branch.parts;
  }
  AwaitCells4(from, wanted, c.patience, values);
#pragma unroll
  for (int place = 0; place < kPlaces; ++place) {
    const Cells4* parts = values + place * kParts * 2;
    y[place] = EightOf({parts[0], parts[1]});
#pragma unroll
    for (int part = 1; part < kParts; ++part) {
      if (part < branch.parts) y[place] += EightOf({parts[2 * part], parts[2 * part + 1]});
    }
  }
}

// Adds up the parts of a product, each block some outputs of all rows, so that a row of sums [hidden] is what blocks
// wait for. `cells` and `sums`: of row 0.
template <int kRowSlots>
__device__ __forceinline__ void SumParts(Context<kRowSlots>& c, const float* cells, float* sums, int64_t row_stride,
                                         int parts) {
  const int groups = c.args.hidden / 4, units = c.args.rows * groups, blocks = static_cast<int>(gridDim.x);
  const int each = (units + blocks - 1) / blocks, begin = static_cast<int>(blockIdx.x) * each;
#pragma unroll 1
  for (int i = c.thread; i < each && begin + i < units; i += kConsumers) {
    const int row = (begin + i) / groups, group = (begin + i) % groups;
    const float* from[kMostParts];
    bool wanted[kMostParts];
    Cells4 values[kMostParts];
#pragma unroll
    for (int part = 0; part < kMostParts; ++part) {
      from[part] = cells + row * row_stride + part * c.args.hidden + group * 4;
      wanted[part] = part < parts;
    }
    AwaitCells4(from, wanted, c.patience, values);
    float4 sum = values[0].Values();
#pragma unroll
    for (int part = 1; part < kMostParts; ++part) {
      if (part >= parts) break;
      const float4 more = values[part].Values();
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    Publish4(sums + row * row_stride + group * 4, sum);
  }
}

// The weights of the norms of a branch and, after it, of the stream (nullptr: none), for the thread's places. Sent for
// early; they are there after CpAsyncWait<0> and a barrier.
template <int kRowSlots>
struct NormWeights {
  Context<kRowSlots>& c;

  __device__ __forceinline__ NormWeights(Context<kRowSlots>& context, const float* branch, const float* stream)
      : c(context) {
#pragma unroll 1
    for (int i = c.thread * 4; i < c.args.hidden; i += kConsumers * 4) {
      if (branch != nullptr) CpAsync16(&c.shared.product.branch_norm[i], branch + i);
      if (stream != nullptr) CpAsync16(&c.shared.product.norm[i], stream + i);
    }
    CpAsyncCommit();
  }
  __device__ __forceinline__ Eight OfBranch(int k) const { return Load8(&c.shared.product.branch_norm[k]); }
};
// In registers.
template <>
struct NormWeights<1> {
  Eight branch{}, stream{};

  __device__ __forceinline__ NormWeights(Context<1>& c, const float* of_branch, const float* of_stream) {
    const int k = Places<1>(c.thread).K(0);
    if (k >= c.args.hidden) return;
    if (of_branch != nullptr) branch = Load8(of_branch + k);
    if (of_stream != nullptr) stream = Load8(of_stream + k);
  }
  __device__ __forceinline__ Eight OfBranch(int) const { return branch; }
};

// The thread's places of the residual stream.
template <int kRowSlots>
struct Stream {
  __device__ __forceinline__ Eight Load(const Context<kRowSlots>& c, int row, int k) const {
    return Load8(&c.shared.hidden[row][k]);
  }
  __device__ __forceinline__ void Store(Context<kRowSlots>& c, int row, int k, const Eight& h) {
    Store8(&c.shared.hidden[row][k], h);
  }
};
template <>
struct Stream<1> {
  Eight own{};

  __device__ __forceinline__ Eight Load(const Context<1>&, int, int) const { return own; }
  __device__ __forceinline__ void Store(Context<1>&, int, int, const Eight& h) { own = h; }
};

// h = (h + norm(branch)) * scale, with h of the thread.
template <int kRowSlots>
__device__ __forceinline__ void AddBranch(Context<kRowSlots>& c, const Branch& branch,
                                          const NormWeights<kRowSlots>& weights, const Stream<kRowSlots>& stream,
                                          Eight (&h)[Places<kRowSlots>::kCount]) {
  const Places<kRowSlots> own(c.thread);
  Eight y[Places<kRowSlots>::kCount];
  AwaitBranch(c, branch, y);
  StoreSquares(c, y, c.shared.squares[0]);
  CpAsyncWait<0>();
  c.Sync();
  const float factor = NormFactor(c, SumOfSquares(c, c.shared.squares[0], own.row));
#pragma unroll
  for (int i = 0; i < Places<kRowSlots>::kCount; ++i) {
    const int k = own.K(i);
    if (own.row >= c.args.rows || k >= c.args.hidden) continue;
    const Eight weight = weights.OfBranch(k);
    h[i] = stream.Load(c, own.row, k);
#pragma unroll
    for (int j = 0; j < 8; ++j) h[i].v[j] = (h[i].v[j] + y[i].v[j] * factor * weight.v[j]) * branch.scale;
  }
}

// The embedding, with which the stream begins.
template <int kRowSlots>
__device__ __forceinline__ void LoadEmbedding(Context<kRowSlots>& c, Eight (&h)[Places<kRowSlots>::kCount]) {
  const Places<kRowSlots> own(c.thread);
#pragma unroll
  for (int i = 0; i < Places<kRowSlots>::kCount; ++i) {
    const int k = own.K(i);
    if (own.row < c.args.rows && k < c.args.hidden)
      h[i] = Load8(c.args.embedding + int64_t{own.row} * c.args.hidden + k);
  }
  CpAsyncWait<0>();
  c.Sync();
}

// The branch joins the stream (no cells: the stream begins), whose next norm has the weight `norm` (nullptr: none). One
// row: its terms, times that weight, go to shared memory. Ends with a barrier. What was sent for has come then.
template <int kRowSlots>
__device__ __forceinline__ void Join(Context<kRowSlots>& c, const Branch& branch, const float* norm,
                                     Stream<kRowSlots>& stream) {
  const NormWeights<kRowSlots> weights(c, branch.norm, norm);
  Eight h[Places<kRowSlots>::kCount] = {};
  if (branch.cells != nullptr) {
    AddBranch(c, branch, weights, stream, h);
  } else {
    LoadEmbedding(c, h);
  }
  StoreSquares(c, h, c.shared.squares[1]);
  const Places<kRowSlots> own(c.thread);
#pragma unroll
  for (int i = 0; i < Places<kRowSlots>::kCount; ++i) {
    const int k = own.K(i);
    if (own.row >= c.args.rows || k >= c.args.hidden) continue;
    stream.Store(c, own.row, k, h[i]);
    if constexpr (kRowSlots == 1) {
      if (norm != nullptr) h[i] *= weights.stream;
      StoreTerms(c.shared, own.first, h[i]);
    }
  }
  c.Sync();
}

// Notes a stream that is not finite. By a whole warp.
template <int kRowSlots>
__device__ __forceinline__ void CheckStream(const Context<kRowSlots>& c, int place) {
  const float sum = SumOfSquares(c, c.shared.squares[1], c.Lane() % kRowSlots);
  if (c.Lane() >= c.args.rows) return;
  if (!(fabsf(sum) <= 3.402823466e38f) && *c.args.bad_place == 0) *c.args.bad_place = place;
}

}  // namespace lapidary::gpu::decode_step
