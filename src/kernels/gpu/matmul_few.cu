#include "kernels/gpu/matmul_few.h"

#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/gelu.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"

namespace lapidary::gpu {
namespace {

// A unit of work is 16 outputs over the CTA's part of k. Its weights arrive in slots of 16 rows x up to 768 k; a slot
// is cut into spans of 32 k, span i for warp i % 8. In a span a lane holds 8 consecutive k of rows g and g + 8 (g =
// lane / 4, t = lane % 4: k = 8 t ...): two 16 x 16 tiles whose k are dealt out in the same way on both sides of the
// product.
constexpr int kWarps = 8;
constexpr int kConsumers = kWarps * kWarpSize;
constexpr int kThreads = kConsumers + kWarpSize;  // the last warp loads
constexpr int kTileRows = 16;
constexpr int kSpan = 32;
constexpr int kSlotSpans = 3;  // a warp's spans of a slot
constexpr int kSlotK = kSlotSpans * kWarps * kSpan;
constexpr int kPhaseSlots = 2;  // slots whose input a lane holds in registers
constexpr int kPhaseK = kPhaseSlots * kSlotK;
// 64 modulo 128, so that the eight lanes of a 16-byte access phase (two rows, four chunks) meet all banks once.
constexpr int kSlotStride = kSlotK * 2 + 64;
constexpr int kSlotBytes = kTileRows * kSlotStride;
constexpr int kRing = 4;  // two CTAs of successive launches fit one multiprocessor
constexpr int kConsumerBarrier = 1;

struct Shared {
  Mbarrier full[kRing];
  Mbarrier empty[kRing];
  float reduce[2][kWarps][kTileRows * kFewRows];
  float sums[2][kWarps][kFewRows];
  BestLogit best[kConsumers];
  alignas(128) unsigned char ring[kRing][kSlotBytes];
};

// What one CTA computes.
struct Share {
  int split;
  int k_begin, k_count;
  int tile_begin, tile_end;

  __device__ int slots_per_tile() const { return (k_count + kSlotK - 1) / kSlotK; }
};

template <FewOutput kOutput>
__device__ int Tiles(const MatmulFewArgs& a) {
  if (kOutput == FewOutput::kGated) return (a.matrices[0].rows + 7) / 8;
  return (a.matrices[0].rows + a.matrices[1].rows + a.matrices[2].rows + kTileRows - 1) / kTileRows;
}

template <FewOutput kOutput>
__device__ Share ShareOf(const MatmulFewArgs& a) {
  const int ctas = static_cast<int>(gridDim.x) / a.k_splits;
  const int cta = static_cast<int>(blockIdx.x);
  Share share{cta / ctas, 0, 0, 0, 0};
  if (share.split >= a.k_splits) return share;
  // Whole spans in each part of k.
  const int spans = (a.k + kSpan - 1) / kSpan;
  const int span_begin = spans * share.split / a.k_splits, span_end = spans * (share.split + 1) / a.k_splits;
  share.k_begin = span_begin * kSpan;
  share.k_count = (span_end * kSpan < a.k ? span_end * kSpan : a.k) - share.k_begin;
  const int64_t tiles = Tiles<kOutput>(a);
  share.tile_begin = static_cast<int>(tiles * (cta % ctas) / ctas);
  share.tile_end = static_cast<int>(tiles * (cta % ctas + 1) / ctas);
  return share;
}

// Row r of a tile, or nullptr past the last.
template <FewOutput kOutput>
__device__ const uint16_t* WeightRow(const MatmulFewArgs& a, int tile, int r) {
  if (kOutput == FewOutput::kGated) {
    const FewMatrix& m = a.matrices[r / 8];
    const int64_t row = tile * 8 + r % 8;
    return row < m.rows ? m.data + row * a.k : nullptr;
  }
  int64_t row = static_cast<int64_t>(tile) * kTileRows + r;
  for (const FewMatrix& m : a.matrices) {
    if (row < m.rows) return m.data + row * a.k;
    row -= m.rows;
  }
  return nullptr;
}

// The loading warp: lane r copies row r of each slot, as soon as the slot is free.
template <FewOutput kOutput>
__device__ void LoadWeights(const MatmulFewArgs& a, const Share& share, Shared& s) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int slots = share.slots_per_tile();
  int slot = 0;
  uint32_t phase = 1;  // of `empty`: the first round does not wait
  for (int tile = share.tile_begin; tile < share.tile_end; ++tile) {
    const uint16_t* row = lane < kTileRows ? WeightRow<kOutput>(a, tile, lane) : nullptr;
    for (int i = 0; i < slots; ++i) {
      const int k = i * kSlotK;
      const uint32_t bytes = static_cast<uint32_t>(share.k_count - k < kSlotK ? share.k_count - k : kSlotK) * 2;
      MbarrierWait(&s.empty[slot], phase);
      if (row != nullptr)
        BulkCopyStreamed(s.ring[slot] + lane * kSlotStride, row + share.k_begin + k, bytes, &s.full[slot]);
      if (lane < kTileRows) MbarrierArriveExpectTx(&s.full[slot], row != nullptr ? bytes : 0);
      if (++slot == kRing) slot = 0, phase ^= 1;
    }
  }
}

struct Eight {
  float v[8];
};

__device__ __forceinline__ Eight Load8(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ void Store8(float* p, const Eight& e) {
  *reinterpret_cast<float4*>(p) = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
  *reinterpret_cast<float4*>(p + 4) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
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

// Factors of a row's norms: 1 / rms of the branch, and of the residual stream with the branch.
struct Norms {
  float branch = 1.0f;
  float stream = 1.0f;
};

__device__ __forceinline__ Eight ResidualStream(const MatmulFewArgs& a, int row, int k, float branch_norm) {
  Eight h = Load8(a.hidden + static_cast<int64_t>(row) * a.k + k);
  if (a.post_norm != nullptr) {
    const Eight x = LoadInput(a, row, k), w = Load8(a.post_norm + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) h.v[i] += x.v[i] * branch_norm * w.v[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) h.v[i] *= a.scale;
  return h;
}

// The sum of `value` over a row's lanes of all warps, in a fixed order. Every consumer must call it.
__device__ __forceinline__ float RowSum(float value, float (&sums)[kWarps][kFewRows]) {
  value += WarpShuffleXor(value, 1);
  value += WarpShuffleXor(value, 2);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (lane % 4 == 0) sums[warp][lane / 4] = value;
  NamedBarrier(kConsumerBarrier, kConsumers);
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w][lane / 4];
  return total;
}

// Applies f(k) to each group of 8 that this lane holds of a row of the whole input.
template <typename F>
__device__ __forceinline__ void ForWholeRow(int k_end, const F& f) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll 2
  for (int k = warp * kSpan + t * 8; k < k_end; k += kWarps * kSpan) f(k);
}

// Norms of the residual stream's rows; the first CTA writes the new stream.
__device__ Norms JoinResidual(const MatmulFewArgs& a, int rows, Shared& s) {
  const int row = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const bool active = row < rows;
  Norms norms;
  if (a.post_norm != nullptr) {
    float sum = 0.0f;
    if (active) {
      ForWholeRow(a.k, [&](int k) {
        const Eight x = LoadInput(a, row, k);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += x.v[i] * x.v[i];
      });
    }
    norms.branch = 1.0f / sqrtf(RowSum(sum, s.sums[0]) / static_cast<float>(a.k) + a.eps);
  }
  float sum = 0.0f;
  if (active) {
    ForWholeRow(a.k, [&](int k) {
      const Eight h = ResidualStream(a, row, k, norms.branch);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += h.v[i] * h.v[i];
      if (blockIdx.x == 0) Store8(a.hidden_out + static_cast<int64_t>(row) * a.k + k, h);
    });
  }
  if (blockIdx.x == 0 && !(fabsf(sum) <= 3.402823466e38f) && *a.bad_place == 0) *a.bad_place = a.place;
  if (a.pre_norm != nullptr) norms.stream = 1.0f / sqrtf(RowSum(sum, s.sums[1]) / static_cast<float>(a.k) + a.eps);
  return norms;
}

template <FewInput kInput>
__device__ __forceinline__ Eight InputOf(const MatmulFewArgs& a, int row, int k, const Norms& norms) {
  if (kInput == FewInput::kResidual) {
    Eight h = ResidualStream(a, row, k, norms.branch);
    if (a.pre_norm != nullptr) {
      const Eight w = Load8(a.pre_norm + k);
#pragma unroll
      for (int i = 0; i < 8; ++i) h.v[i] = h.v[i] * norms.stream * w.v[i];
    }
    return h;
  }
  Eight x = LoadInput(a, row, k);
  if (kInput == FewInput::kPerLayer) {
    const Eight p = Load8(a.per_layer + row * a.per_layer_stride + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = GeluTanh(x.v[i]) * p.v[i];
  }
  return x;
}

// A lane's input of one span, as the product wants it: [tile][k pair] in two terms.
struct SpanInput {
  uint32_t hi[2][2];
  uint32_t lo[2][2];
};

__device__ __forceinline__ SpanInput SplitSpan(const Eight& x) {
  SpanInput out;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const Bf16PairTerms terms = SplitBf16Pair(x.v[2 * pair], x.v[2 * pair + 1]);
    out.hi[pair / 2][pair % 2] = terms.hi;
    out.lo[pair / 2][pair % 2] = terms.lo;
  }
  return out;
}

using PhaseInput = SpanInput[kPhaseSlots][kSlotSpans];

// The input of slots [first_slot, first_slot + kPhaseSlots) of the CTA's part of k.
template <FewInput kInput>
__device__ __forceinline__ void LoadPhase(const MatmulFewArgs& a, const Share& share, int first_slot, int rows,
                                          const Norms& norms, PhaseInput& input) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = lane / 4;
#pragma unroll
  for (int slot = 0; slot < kPhaseSlots; ++slot) {
#pragma unroll
    for (int j = 0; j < kSlotSpans; ++j) {
      const int k = (first_slot + slot) * kSlotK + (j * kWarps + warp) * kSpan + lane % 4 * 8;
      Eight x{};
      if (row < rows && k < share.k_count) x = InputOf<kInput>(a, row, share.k_begin + k, norms);
      input[slot][j] = SplitSpan(x);
    }
  }
}

// Where the consumers stand in the ring.
struct RingPlace {
  int slot = 0;
  uint32_t phase = 0;

  __device__ void Next() {
    if (++slot == kRing) slot = 0, phase ^= 1;
  }
};

struct TileSums {
  float hi[4] = {}, lo[4] = {};
};

// Adds one slot's products: `k_left` k of it are real.
__device__ __forceinline__ void ConsumeSlot(Shared& s, RingPlace& place, int k_left,
                                            const SpanInput (&input)[kSlotSpans], TileSums& sums) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const unsigned char* base = s.ring[place.slot] + lane / 4 * kSlotStride;
  MbarrierWait(&s.full[place.slot], place.phase);
#pragma unroll
  for (int j = 0; j < kSlotSpans; ++j) {
    const int k = (j * kWarps + warp) * kSpan + lane % 4 * 8;
    uint4 top{}, bottom{};  // what lies behind the end of k was never loaded
    if (k < k_left) {
      top = *reinterpret_cast<const uint4*>(base + k * 2);
      bottom = *reinterpret_cast<const uint4*>(base + 8 * kSlotStride + k * 2);
    }
    const uint32_t first[4] = {top.x, bottom.x, top.y, bottom.y}, second[4] = {top.z, bottom.z, top.w, bottom.w};
    Mma16816(sums.hi, first, input[j].hi[0][0], input[j].hi[0][1]);
    Mma16816(sums.lo, first, input[j].lo[0][0], input[j].lo[0][1]);
    Mma16816(sums.hi, second, input[j].hi[1][0], input[j].hi[1][1]);
    Mma16816(sums.lo, second, input[j].lo[1][0], input[j].lo[1][1]);
  }
  // Only now: the products have used what was read, so a refill cannot overtake a read.
  WarpSync();
  if (lane == 0) MbarrierArrive(&s.empty[place.slot]);
  place.Next();
}

__device__ __forceinline__ bool IsBetter(float value, int32_t id, const BestLogit& than) {
  return value > than.value || (value == than.value && id < than.id) || (than.id < 0 && value == value);
}

// Adds the warps' sums of a tile in order and writes the tile's outputs. `i` in [0, 128): row i / 8 of row i % 8.
template <FewOutput kOutput>
__device__ __forceinline__ void FinishTile(const MatmulFewArgs& a, const Share& share, int tile, int rows, int i,
                                           const float (&parts)[kWarps][kTileRows * kFewRows], BestLogit& best) {
  const int token = i % kFewRows, r = i / kFewRows;
  const auto sum_of = [&](int at) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += parts[w][at];
    return sum;
  };
  if (token >= rows) return;
  if (kOutput == FewOutput::kGated) {
    const int n = tile * 8 + r;
    if (r >= 8 || n >= a.matrices[0].rows) return;
    a.y[static_cast<int64_t>(token) * a.matrices[0].rows + n] = GeluTanh(sum_of(i)) * sum_of(i + 8 * kFewRows);
    return;
  }
  const int total = a.matrices[0].rows + a.matrices[1].rows + a.matrices[2].rows;
  const int n = tile * kTileRows + r;
  if (n >= total) return;
  float value = sum_of(i);
  if (kOutput == FewOutput::kHead) {
    if (a.softcap > 0.0f) value = a.softcap * tanhf(value / a.softcap);
    if (IsBetter(value, n, best)) best = {value, n};
  }
  a.y[(static_cast<int64_t>(share.split) * kFewRows + token) * total + n] = value;
}

// The best of each row over the CTA's consumers.
__device__ void StoreBest(const MatmulFewArgs& a, Shared& s, const BestLogit& mine) {
  const int i = static_cast<int>(threadIdx.x);
  s.best[i] = mine;
  NamedBarrier(kConsumerBarrier, kConsumers);
  if (i >= kFewRows) return;
  BestLogit best = s.best[i];
  for (int other = i + kFewRows; other < kConsumers; other += kFewRows) {
    const BestLogit& b = s.best[other];
    if (b.id >= 0 && IsBetter(b.value, b.id, best)) best = b;
  }
  a.best[static_cast<int64_t>(blockIdx.x) * kFewRows + i] = best;
}

template <FewInput kInput, FewOutput kOutput, bool kOnePhase>
__device__ void Consume(const MatmulFewArgs& a, const Share& share, Shared& s) {
  const int tid = static_cast<int>(threadIdx.x), warp = tid / kWarpSize, lane = tid % kWarpSize;
  WaitForEarlierKernels();
  const int rows = *a.rows;
  Norms norms;
  if (kInput == FewInput::kResidual) norms = JoinResidual(a, rows, s);
  const int slots = share.slots_per_tile();
  PhaseInput input;
  if (kOnePhase) LoadPhase<kInput>(a, share, 0, rows, norms, input);
  RingPlace place;
  BestLogit best{0.0f, -1};
  for (int tile = share.tile_begin; tile < share.tile_end; ++tile) {
    TileSums sums;
    for (int first = 0; first < slots; first += kPhaseSlots) {
      if (!kOnePhase) LoadPhase<kInput>(a, share, first, rows, norms, input);
#pragma unroll
      for (int i = 0; i < kPhaseSlots; ++i) {
        if (first + i < slots) ConsumeSlot(s, place, share.k_count - (first + i) * kSlotK, input[i], sums);
      }
    }
    // Two buffers: while half of the warps finish this tile, nobody writes into it before the next barrier.
    const int buffer = (tile - share.tile_begin) % 2;
    float* mine = s.reduce[buffer][warp];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2* out = reinterpret_cast<float2*>(mine + (lane / 4 + half * 8) * kFewRows + lane % 4 * 2);
      *out = make_float2(sums.hi[half * 2] + sums.lo[half * 2], sums.hi[half * 2 + 1] + sums.lo[half * 2 + 1]);
    }
    NamedBarrier(kConsumerBarrier, kConsumers);
    if (tid / 128 == buffer) FinishTile<kOutput>(a, share, tile, rows, tid % 128, s.reduce[buffer], best);
  }
  if (kOutput == FewOutput::kHead) StoreBest(a, s, best);
}

template <FewInput kInput, FewOutput kOutput, bool kOnePhase>
__global__ void __launch_bounds__(kThreads, 2) MatmulFewKernel(const MatmulFewArgs a) {
  Shared& s = *DynamicShared<Shared>();
  DependentsMayStart();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) {
      MbarrierInit(&s.full[i], kTileRows);
      MbarrierInit(&s.empty[i], kWarps);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  const Share share = ShareOf<kOutput>(a);
  if (threadIdx.x >= kConsumers) {
    LoadWeights<kOutput>(a, share, s);
  } else {
    Consume<kInput, kOutput, kOnePhase>(a, share, s);
  }
}

// A warp a row.
__global__ void BestOfCtasKernel(int ctas, const int32_t* rows, const BestLogit* best, int32_t* ids) {
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
  if (lane == 0 && row < *rows) ids[row] = mine.id;
}

template <FewInput kInput, FewOutput kOutput>
void LaunchShaped(const char* what, gpuStream stream, const MatmulFewArgs& a) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(MatmulFewCtas());
  shape.block = kThreads;
  shape.shared_bytes = sizeof(Shared);
  shape.dependent = true;
  const int spans = (a.k + kSpan - 1) / kSpan;
  const bool one_phase = (spans + a.k_splits - 1) / a.k_splits * kSpan <= kPhaseK;
  Launch(what, one_phase ? MatmulFewKernel<kInput, kOutput, true> : MatmulFewKernel<kInput, kOutput, false>, shape,
         stream, a);
}

template <FewInput kInput>
void LaunchWithInput(const char* what, gpuStream stream, FewOutput output, const MatmulFewArgs& a) {
  switch (output) {
    case FewOutput::kStore:
      return LaunchShaped<kInput, FewOutput::kStore>(what, stream, a);
    case FewOutput::kGated:
      return LaunchShaped<kInput, FewOutput::kGated>(what, stream, a);
    case FewOutput::kHead:
      return LaunchShaped<kInput, FewOutput::kHead>(what, stream, a);
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

void BestOfCtas(gpuStream stream, const int32_t* rows, const BestLogit* best, int32_t* ids) {
  LaunchShape shape;
  shape.block = kFewRows * kWarpSize;
  shape.dependent = true;
  Launch("best of the logits", BestOfCtasKernel, shape, stream, MatmulFewCtas(), rows, best, ids);
}

void LaunchMatmulFew(const char* what, gpuStream stream, FewInput input, FewOutput output, const MatmulFewArgs& args) {
  switch (input) {
    case FewInput::kRows:
      return LaunchWithInput<FewInput::kRows>(what, stream, output, args);
    case FewInput::kPerLayer:
      return LaunchShaped<FewInput::kPerLayer, FewOutput::kStore>(what, stream, args);
    case FewInput::kResidual:
      return LaunchWithInput<FewInput::kResidual>(what, stream, output, args);
  }
}

}  // namespace lapidary::gpu
