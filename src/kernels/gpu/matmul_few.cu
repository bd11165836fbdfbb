#include "kernels/gpu/matmul_few.h"

#include <string>

#include "base/error.h"
#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/gelu.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"

namespace lapidary::gpu {
namespace {

// What becomes of the input rows on their way into the product.
enum class FewInput : uint8_t { kRows, kPerLayer, kResidual };

// A CTA computes tiles of 16 outputs over its part of k, in phases of up to 1536 k. The weights of a phase come into
// two slots of shared memory, rows 0 to 7 and rows 8 to 15, of which every warp sends for one row each; there are two
// such pairs, so one is under way while the other is used. A warp owns a stretch of up to 192 k of a phase: six spans
// of 32. In a span a lane takes 8 consecutive k of rows g and g + 8 (g = lane / 4, t = lane % 4: k = 8 t ...), which
// makes two 16 x 16 tiles for the tensor cores, whose k are dealt out alike on both sides of the product.
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kTileRows = 16;
constexpr int kSlotRows = 8;
constexpr int kSpan = 32;
constexpr int kPhaseSpans = 6;  // a warp's, whose input a lane holds in registers
constexpr int kPhaseK = kWarps * kPhaseSpans * kSpan;
// 64 modulo 128, so that the eight lanes of a 16-byte access phase (two rows, four chunks) meet all banks once.
constexpr int kSlotStride = kPhaseK * 2 + 64;
constexpr int kSlotBytes = kSlotRows * kSlotStride;
constexpr int kPairs = 2;  // of slots; two CTAs of successive launches fit one multiprocessor
// The residual stream's rows are joined and normed kJoinRows at a time, by kJoinThreads threads each.
constexpr int kJoinRows = 4;
constexpr int kJoinThreads = kThreads / kJoinRows;
constexpr int kJoinVectors = kFewResidualWidth / 4 / kJoinThreads;  // of 4 floats, a thread
constexpr int kJoinParts = 2;                                       // of the branch, loaded at once
constexpr int kRowStride = kFewResidualWidth + 4;  // so that 16-byte reads of two rows meet all banks once
static_assert(kFewResidualWidth == kPhaseK && kSlotRows == kWarps);

struct Shared {
  Mbarrier full[kPairs][2];
  float sums[2][kWarps];
  union {
    alignas(16) float reduce[2][kWarps][kTileRows * kFewRows];
    alignas(16) float norms[2][kFewResidualWidth];  // post_norm and pre_norm, until the input is made
  };
  BestLogit best[kThreads];
  alignas(128) unsigned char slots[kPairs][2][kSlotBytes];

  // The residual stream's rows on their way to the registers lie in the last slot, which is not filled before.
  __device__ float* row(int i) { return reinterpret_cast<float*>(slots[kPairs - 1][1]) + i * kRowStride; }
};
static_assert(kJoinRows * kRowStride * sizeof(float) <= kSlotBytes);

// What one CTA computes.
struct Share {
  int split;
  int k_begin, k_count;
  int tile_begin, tile_end;
  int warp_spans;  // of a phase, at most kPhaseSpans: all warps work on a short k too

  __device__ int warp_k() const { return warp_spans * kSpan; }
  __device__ int phase_k() const { return kWarps * warp_k(); }
  __device__ int phases() const { return (k_count + phase_k() - 1) / phase_k(); }
};

template <FewOutput kOutput>
__device__ __forceinline__ int Tiles(const MatmulFewArgs& a) {
  if (kOutput == FewOutput::kGated) return (a.w.rows / 2 + 7) / 8;
  return (a.w.rows + kTileRows - 1) / kTileRows;
}

template <FewOutput kOutput>
__device__ Share ShareOf(const MatmulFewArgs& a) {
  const int ctas = static_cast<int>(gridDim.x) / a.k_splits, cta = static_cast<int>(blockIdx.x);
  Share share{cta / ctas, 0, 0, 0, 0, 1};
  if (share.split >= a.k_splits) return share;
  // Whole spans in each part of k.
  const int spans = (a.k + kSpan - 1) / kSpan;
  const int span_begin = spans * share.split / a.k_splits, span_end = spans * (share.split + 1) / a.k_splits;
  share.k_begin = span_begin * kSpan;
  share.k_count = (span_end * kSpan < a.k ? span_end * kSpan : a.k) - share.k_begin;
  const int64_t tiles = Tiles<kOutput>(a);
  share.tile_begin = static_cast<int>(tiles * (cta % ctas) / ctas);
  share.tile_end = static_cast<int>(tiles * (cta % ctas + 1) / ctas);
  const int warp_spans = (span_end - span_begin + kWarps - 1) / kWarps;
  share.warp_spans = warp_spans < kPhaseSpans ? warp_spans : kPhaseSpans;
  return share;
}

// Row `row` of half `half` of a tile, or nullptr past the last.
template <FewOutput kOutput>
__device__ __forceinline__ const uint16_t* WeightRow(const MatmulFewArgs& a, int tile, int half, int row) {
  const int rows = kOutput == FewOutput::kGated ? a.w.rows / 2 : a.w.rows;
  const int within = kOutput == FewOutput::kGated ? tile * kSlotRows + row : tile * kTileRows + half * kSlotRows + row;
  if (within >= rows) return nullptr;
  const int64_t index = kOutput == FewOutput::kGated ? int64_t{half} * rows + within : within;
  return a.w.data + index * a.k;
}

// Sends for half `half` of pair number `pair` of the CTA: phase pair % phases of tile pair / phases. Every warp sends
// for one row.
template <FewOutput kOutput>
__device__ __forceinline__ void SendFor(const MatmulFewArgs& a, const Share& share, int pair, int half, Shared& s) {
  const int phases = share.phases(), tile = share.tile_begin + pair / phases, k = pair % phases * share.phase_k();
  if (tile >= share.tile_end || static_cast<int>(LaneIndex()) != half) return;
  const int row = static_cast<int>(WarpIndex()), left = share.k_count - k;
  const uint16_t* from = WeightRow<kOutput>(a, tile, half, row);
  Mbarrier* full = &s.full[pair % kPairs][half];
  uint32_t bytes = 0;
  if (from != nullptr) {
    bytes = static_cast<uint32_t>(left < share.phase_k() ? left : share.phase_k()) * 2;
    BulkCopyStreamed(s.slots[pair % kPairs][half] + row * kSlotStride, from + share.k_begin + k, bytes, full);
  }
  MbarrierArriveExpectTx(full, bytes);
}

struct Eight {
  float v[8];
};

__device__ __forceinline__ Eight Load8(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// x of row `row` at k .. k + 7, its parts added in order.
__device__ __forceinline__ Eight LoadInput(const MatmulFewArgs& a, int row, int k) {
  Eight sum = Load8(a.x + static_cast<int64_t>(row) * a.k + k);
  for (int part = 1; part < a.x_parts; ++part) {
    const Eight more = Load8(a.x + (static_cast<int64_t>(part) * kFewRows + row) * a.k + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.v[i] += more.v[i];
  }
  return sum;
}

using PhaseInput = Eight[kPhaseSpans];

// Copies post_norm and pre_norm to shared memory; they may be read before the input is ready.
__device__ __forceinline__ void LoadNorms(const MatmulFewArgs& a, Shared& s) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int which = 0; which < 2; ++which) {
    const float* from = which == 0 ? a.post_norm : a.pre_norm;
    if (from == nullptr) continue;
    for (int i = tid * 4; i < a.k; i += kThreads * 4) CpAsync16(&s.norms[which][i], from + i);
  }
  CpAsyncCommit();
}

// The sum of `value` over a row's threads, in a fixed order. Every consumer must call it.
__device__ __forceinline__ float RowSum(float value, float (&sums)[kWarps]) {
  constexpr int kRowWarps = kJoinThreads / kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  value = WarpSum(value);
  if (threadIdx.x % kWarpSize == 0) sums[warp] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kRowWarps; ++w) total += sums[warp / kRowWarps * kRowWarps + w];
  return total;
}

__device__ __forceinline__ float SumOfSquares(const float4 (&v)[kJoinVectors]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kJoinVectors; ++i) sum += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
  return sum;
}

// h = (h + x * factor * weight) * scale
__device__ __forceinline__ void Join(float4& h, const float4& x, float factor, const float4& weight, float scale) {
  h.x = (h.x + x.x * factor * weight.x) * scale;
  h.y = (h.y + x.y * factor * weight.y) * scale;
  h.z = (h.z + x.z * factor * weight.z) * scale;
  h.w = (h.w + x.w * factor * weight.w) * scale;
}

// Row `row` of the input, or zeros past the last: joins the branch to the stream and norms it, into s.row(). The first
// CTA writes the new stream.
__device__ __forceinline__ void JoinRow(const MatmulFewArgs& a, int row, bool active, Shared& s) {
  const int lane = static_cast<int>(threadIdx.x) % kJoinThreads;
  float4 h[kJoinVectors], x[kJoinVectors];
#pragma unroll
  for (int i = 0; i < kJoinVectors; ++i) {
    const int k = (i * kJoinThreads + lane) * 4;
    h[i] = x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (active && k < a.k) h[i] = *reinterpret_cast<const float4*>(a.hidden + static_cast<int64_t>(row) * a.k + k);
  }
  for (int first = 0; active && a.post_norm != nullptr && first < a.x_parts; first += kJoinParts) {
    float4 parts[kJoinParts][kJoinVectors];
#pragma unroll
    for (int part = 0; part < kJoinParts; ++part) {
      const float* from = a.x + (static_cast<int64_t>(first + part) * kFewRows + row) * a.k;
#pragma unroll
      for (int i = 0; i < kJoinVectors; ++i) {
        const int k = (i * kJoinThreads + lane) * 4;
        parts[part][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + part < a.x_parts && k < a.k) parts[part][i] = *reinterpret_cast<const float4*>(from + k);
      }
    }
#pragma unroll
    for (int part = 0; part < kJoinParts; ++part) {
#pragma unroll
      for (int i = 0; i < kJoinVectors; ++i) {
        x[i].x += parts[part][i].x, x[i].y += parts[part][i].y, x[i].z += parts[part][i].z, x[i].w += parts[part][i].w;
      }
    }
  }
  CpAsyncWait<0>();  // the norms; the barrier in RowSum shows them to all
  const float branch_squares = RowSum(SumOfSquares(x), s.sums[0]);
  const float branch_norm =
      a.post_norm != nullptr ? 1.0f / sqrtf(branch_squares / static_cast<float>(a.k) + a.eps) : 0.0f;
#pragma unroll
  for (int i = 0; i < kJoinVectors; ++i) {
    const int k = (i * kJoinThreads + lane) * 4;
    if (!active || k >= a.k) continue;
    float4 weight = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (a.post_norm != nullptr) weight = *reinterpret_cast<const float4*>(&s.norms[0][k]);
    Join(h[i], x[i], branch_norm, weight, a.scale);
    if (blockIdx.x == 0) *reinterpret_cast<float4*>(a.hidden_out + static_cast<int64_t>(row) * a.k + k) = h[i];
  }
  const float sum = SumOfSquares(h);
  if (blockIdx.x == 0 && !(fabsf(sum) <= 3.402823466e38f) && *a.bad_place == 0) *a.bad_place = a.place;
  float stream_norm = 1.0f;
  if (a.pre_norm != nullptr) stream_norm = 1.0f / sqrtf(RowSum(sum, s.sums[1]) / static_cast<float>(a.k) + a.eps);
#pragma unroll
  for (int i = 0; i < kJoinVectors; ++i) {
    const int k = (i * kJoinThreads + lane) * 4;
    if (k >= a.k) continue;
    float4 weight = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    if (a.pre_norm != nullptr) weight = *reinterpret_cast<const float4*>(&s.norms[1][k]);
    *reinterpret_cast<float4*>(s.row(static_cast<int>(threadIdx.x) / kJoinThreads) + k) =
        make_float4(h[i].x * stream_norm * weight.x, h[i].y * stream_norm * weight.y, h[i].z * stream_norm * weight.z,
                    h[i].w * stream_norm * weight.w);
  }
}

// Takes this lane's part of the input from s.row(), which hold rows from `first` on.
__device__ __forceinline__ void TakeJoined(const MatmulFewArgs& a, const Share& share, int first, Shared& s,
                                           PhaseInput& input) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (lane / 4 / kJoinRows != first / kJoinRows) return;
#pragma unroll
  for (int i = 0; i < kPhaseSpans; ++i) {
    const int k = warp * share.warp_k() + i * kSpan + lane % 4 * 8;
    if (i < share.warp_spans && k < a.k) input[i] = Load8(s.row(lane / 4 - first) + k);
  }
}

// Rows [first, first + kJoinRows) of the input, through s.row(); before the first of them, no row has any.
__device__ __forceinline__ void LoadJoinedRows(const MatmulFewArgs& a, const Share& share, int first, Shared& s,
                                               PhaseInput& input) {
  const int row = first + static_cast<int>(threadIdx.x) / kJoinThreads;
  JoinRow(a, row, row < a.rows, s);
  __syncthreads();
  if (first == 0) {
#pragma unroll
    for (Eight& values : input) values = {};
  }
  TakeJoined(a, share, first, s, input);
  FenceProxyAsync();  // a bulk copy comes to where the rows lay
  __syncthreads();
}

// kResidual: the input of the whole k.
__device__ __forceinline__ void LoadJoined(const MatmulFewArgs& a, const Share& share, Shared& s, PhaseInput& input) {
  LoadJoinedRows(a, share, 0, s, input);
  for (int first = kJoinRows; first < a.rows; first += kJoinRows) LoadJoinedRows(a, share, first, s, input);
}

template <FewInput kInput>
__device__ __forceinline__ Eight InputOf(const MatmulFewArgs& a, int row, int k) {
  Eight x = LoadInput(a, row, k);
  if (kInput == FewInput::kPerLayer) {
    const Eight p = Load8(a.per_layer + row * a.per_layer_stride + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = GeluTanh(x.v[i]) * p.v[i];
  }
  return x;
}

// The input of phase `phase` of the CTA's part of k.
template <FewInput kInput>
__device__ __forceinline__ void LoadPhase(const MatmulFewArgs& a, const Share& share, int phase, PhaseInput& input) {
  const int warp = static_cast<int>(WarpIndex()), lane = static_cast<int>(LaneIndex());
#pragma unroll
  for (int i = 0; i < kPhaseSpans; ++i) {
    const int k = phase * share.phase_k() + warp * share.warp_k() + i * kSpan + lane % 4 * 8;
    input[i] = {};
    if (i < share.warp_spans && lane / 4 < a.rows && k < share.k_count)
      input[i] = InputOf<kInput>(a, lane / 4, share.k_begin + k);
  }
}

// One sum for each term of the input.
struct TileSums {
  float terms[3][4] = {};

  __device__ float Total(int i) const { return terms[0][i] + (terms[1][i] + terms[2][i]); }
};

// sums += weights * (four values of x) for a 16 x 16 tile. The values count as three bfloat16 terms, which hold all of
// their 24 bits; they are split here, each time, because registers hold no more than the values.
__device__ __forceinline__ void AddTile(const uint32_t (&weights)[4], const float* x, TileSums& sums) {
  float rest[4] = {x[0], x[1], x[2], x[3]};
  for (float& value : rest) Opaque(value);
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    const uint32_t first = PackBf16(rest[0], rest[1]), second = PackBf16(rest[2], rest[3]);
    Mma16816(sums.terms[term], weights, first, second);
    rest[0] -= LowBf16(first);
    rest[1] -= HighBf16(first);
    rest[2] -= LowBf16(second);
    rest[3] -= HighBf16(second);
  }
}

// Adds the warp's products of pair number `pair`, of which `k_left` k are real.
__device__ __forceinline__ void AddPhase(Shared& s, const Share& share, int pair, int k_left, const PhaseInput& input,
                                         TileSums& sums) {
  const int lane = static_cast<int>(LaneIndex()), place = pair % kPairs;
  const int warp_k = static_cast<int>(WarpIndex()) * share.warp_k() + lane % 4 * 8;
  const unsigned char* top_row = s.slots[place][0] + lane / 4 * kSlotStride;
  for (int half = 0; half < 2; ++half) MbarrierWait(&s.full[place][half], static_cast<uint32_t>(pair / kPairs % 2));
#pragma unroll
  for (int i = 0; i < kPhaseSpans; ++i) {
    if (i >= share.warp_spans) break;
    const int k = warp_k + i * kSpan;
    uint4 top{}, bottom{};  // what lies behind the end of k was never loaded
    if (k < k_left) {
      top = *reinterpret_cast<const uint4*>(top_row + k * 2);
      bottom = *reinterpret_cast<const uint4*>(top_row + kSlotBytes + k * 2);
    }
    AddTile({top.x, bottom.x, top.y, bottom.y}, input[i].v, sums);
    AddTile({top.z, bottom.z, top.w, bottom.w}, input[i].v + 4, sums);
  }
}

__device__ __forceinline__ bool IsBetter(float value, int32_t id, const BestLogit& than) {
  return value > than.value || (value == than.value && id < than.id) || (than.id < 0 && value == value);
}

// Adds the warps' sums of a tile in order and writes the tile's outputs. `i` in [0, 128): row i / 8 of row i % 8.
template <FewOutput kOutput>
__device__ __forceinline__ void FinishTile(const MatmulFewArgs& a, const Share& share, int tile, int i,
                                           const float (&parts)[kWarps][kTileRows * kFewRows], BestLogit& best) {
  const int token = i % kFewRows, r = i / kFewRows;
  const auto sum_of = [&](int at) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += parts[w][at];
    return sum;
  };
  if (token >= a.rows) return;
  if (kOutput == FewOutput::kGated) {
    const int n = tile * 8 + r, half = a.w.rows / 2;
    if (r >= 8 || n >= half) return;
    a.y[static_cast<int64_t>(token) * half + n] = GeluTanh(sum_of(i)) * sum_of(i + 8 * kFewRows);
    return;
  }
  const int n = tile * kTileRows + r;
  if (n >= a.w.rows) return;
  float value = sum_of(i);
  if (kOutput == FewOutput::kHead) {
    if (a.softcap > 0.0f) value = a.softcap * tanhf(value / a.softcap);
    if (IsBetter(value, n, best)) best = {value, n};
  }
  a.y[(static_cast<int64_t>(share.split) * kFewRows + token) * a.w.rows + n] = value;
}

// The best of each row over the CTA's consumers.
__device__ void StoreBest(const MatmulFewArgs& a, Shared& s, const BestLogit& mine) {
  const int i = static_cast<int>(threadIdx.x);
  s.best[i] = mine;
  __syncthreads();
  if (i >= kFewRows) return;
  BestLogit best = s.best[i];
  for (int other = i + kFewRows; other < kThreads; other += kFewRows) {
    const BestLogit& b = s.best[other];
    if (b.id >= 0 && IsBetter(b.value, b.id, best)) best = b;
  }
  a.best[static_cast<int64_t>(blockIdx.x) * kFewRows + i] = best;
}

template <FewInput kInput, FewOutput kOutput, bool kOnePhase>
__global__ void __launch_bounds__(kThreads, 2) MatmulFewKernel(const MatmulFewArgs a) {
  Shared& s = *DynamicShared<Shared>();
  DependentsMayStart();
  const int tid = static_cast<int>(threadIdx.x), warp = tid / kWarpSize, lane = tid % kWarpSize;
  if (tid == 0) {
    for (int i = 0; i < 2 * kPairs; ++i) MbarrierInit(&s.full[i / 2][i % 2], kSlotRows);
    FenceBarrierInit();
  }
  __syncthreads();
  const Share share = ShareOf<kOutput>(a);
  const int sent_before_input = 2 * kPairs - (kInput == FewInput::kResidual ? 1 : 0);
  for (int i = 0; i < sent_before_input; ++i) SendFor<kOutput>(a, share, i / 2, i % 2, s);
  if (kInput == FewInput::kResidual) LoadNorms(a, s);
  WaitForEarlierKernels();
  PhaseInput input;
  if constexpr (kInput == FewInput::kResidual) {
    LoadJoined(a, share, s, input);
    SendFor<kOutput>(a, share, kPairs - 1, 1, s);
  } else if (kOnePhase) {
    LoadPhase<kInput>(a, share, 0, input);
  }
  BestLogit best{0.0f, -1};
  int pair = 0;
  for (int tile = share.tile_begin; tile < share.tile_end; ++tile) {
    TileSums sums;
    for (int phase = 0; phase < (kOnePhase ? 1 : share.phases()); ++phase, ++pair) {
      if constexpr (!kOnePhase) {
        if (phase > 0) {
          __syncthreads();  // all have used the pair before
          for (int half = 0; half < 2; ++half) SendFor<kOutput>(a, share, pair - 1 + kPairs, half, s);
        }
        LoadPhase<kInput>(a, share, phase, input);
      }
      AddPhase(s, share, pair, share.k_count - phase * share.phase_k(), input, sums);
    }
    // Two buffers: while half of the warps finish this tile, nobody writes into it before the next barrier.
    const int buffer = (tile - share.tile_begin) % 2;
    float* mine = s.reduce[buffer][warp];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2* out = reinterpret_cast<float2*>(mine + (lane / 4 + half * 8) * kFewRows + lane % 4 * 2);
      *out = make_float2(sums.Total(half * 2), sums.Total(half * 2 + 1));
    }
    __syncthreads();
    for (int half = 0; half < 2; ++half) SendFor<kOutput>(a, share, pair - 1 + kPairs, half, s);
    if (tid / 128 == buffer) FinishTile<kOutput>(a, share, tile, tid % 128, s.reduce[buffer], best);
  }
  if (kOutput == FewOutput::kHead) StoreBest(a, s, best);
}

// A warp a row.
__global__ void BestOfCtasKernel(int ctas, int rows, const BestLogit* best, int32_t* ids) {
  const int row = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  DependentsMayStart();
  WaitForEarlierKernels();
  BestLogit mine{0.0f, -1};
  for (int cta = lane; cta < ctas; cta += kWarpSize) {
    const BestLogit other = best[cta * kFewRows + row];
    if (other.id >= 0 && IsBetter(other.value, other.id, mine)) mine = other;
  }
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const BestLogit other{WarpShuffleXor(mine.value, mask), WarpShuffleXor(mine.id, mask)};
    if (other.id >= 0 && IsBetter(other.value, other.id, mine)) mine = other;
  }
  if (lane == 0 && row < rows) ids[row] = mine.id;
}

template <FewInput kInput, FewOutput kOutput>
void LaunchShaped(const char* what, gpuStream stream, const MatmulFewArgs& a) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(MatmulFewCtas());
  shape.block = kThreads;
  shape.shared_bytes = sizeof(Shared);
  shape.dependent = true;
  if constexpr (kInput == FewInput::kResidual) {
    if (a.k > kFewResidualWidth) {
      Throw(ErrorKind::kInvalidArgument, std::string(what) + ": found a residual stream of " + std::to_string(a.k) +
                                             " values, wanted at most " + std::to_string(kFewResidualWidth));
    }
    Launch(what, MatmulFewKernel<kInput, kOutput, true>, shape, stream, a);
  } else {
    const int spans = (a.k + kSpan - 1) / kSpan;
    const bool one_phase = (spans + a.k_splits - 1) / a.k_splits * kSpan <= kPhaseK;
    Launch(what, one_phase ? MatmulFewKernel<kInput, kOutput, true> : MatmulFewKernel<kInput, kOutput, false>, shape,
           stream, a);
  }
}

}  // namespace

int MatmulFewCtas() {
  static const int ctas = [] {
    const std::optional<DeviceInfo> device = FindDevice(nullptr);
    return device ? device->multiprocessors : 1;
  }();
  return ctas;
}

int MatmulFewSplits(int64_t k) { return static_cast<int>((k + kPhaseK - 1) / kPhaseK); }

void BestOfCtas(gpuStream stream, int rows, const BestLogit* best, int32_t* ids) {
  LaunchShape shape;
  shape.block = kFewRows * kWarpSize;
  shape.dependent = true;
  Launch("best of the logits", BestOfCtasKernel, shape, stream, MatmulFewCtas(), rows, best, ids);
}

void MultiplyFew(const char* what, gpuStream stream, const MatmulFewArgs& args) {
  LaunchShaped<FewInput::kRows, FewOutput::kStore>(what, stream, args);
}

void MultiplyFewHead(const char* what, gpuStream stream, const MatmulFewArgs& args) {
  LaunchShaped<FewInput::kRows, FewOutput::kHead>(what, stream, args);
}

void MultiplyFewPerLayer(const char* what, gpuStream stream, const MatmulFewArgs& args) {
  LaunchShaped<FewInput::kPerLayer, FewOutput::kStore>(what, stream, args);
}

void JoinAndMultiplyFew(const char* what, gpuStream stream, FewOutput output, const MatmulFewArgs& args) {
  switch (output) {
    case FewOutput::kStore:
      return LaunchShaped<FewInput::kResidual, FewOutput::kStore>(what, stream, args);
    case FewOutput::kGated:
      return LaunchShaped<FewInput::kResidual, FewOutput::kGated>(what, stream, args);
    case FewOutput::kHead:
      return LaunchShaped<FewInput::kResidual, FewOutput::kHead>(what, stream, args);
  }
}

}  // namespace lapidary::gpu
