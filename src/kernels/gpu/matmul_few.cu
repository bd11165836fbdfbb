#include "kernels/gpu/matmul_few.h"

#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"

namespace lapidary::gpu {
namespace {

// What becomes of the products.
enum class FewOutput : uint8_t { kStore, kHead };

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
static_assert(kSlotRows == kWarps);

struct Shared {
  Mbarrier full[kPairs][2];
  alignas(16) float reduce[2][kWarps][kTileRows * kFewRows];
  BestLogit best[kThreads];
  alignas(128) unsigned char slots[kPairs][2][kSlotBytes];
};

// What one CTA computes.
struct Share {
  int tile_begin, tile_end;
  int warp_spans;  // of a phase, at most kPhaseSpans: all warps work on a short k too

  __device__ int warp_k() const { return warp_spans * kSpan; }
  __device__ int phase_k() const { return kWarps * warp_k(); }
  __device__ int phases(int k) const { return (k + phase_k() - 1) / phase_k(); }
};

__device__ Share ShareOf(const MatmulFewArgs& a) {
  const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
  const int64_t tiles = (a.w.rows + kTileRows - 1) / kTileRows;
  const int spans = (a.k + kSpan - 1) / kSpan, warp_spans = (spans + kWarps - 1) / kWarps;
  return {static_cast<int>(tiles * cta / ctas), static_cast<int>(tiles * (cta + 1) / ctas),
          warp_spans < kPhaseSpans ? warp_spans : kPhaseSpans};
}

// Row `row` of half `half` of a tile, or nullptr past the last.
__device__ __forceinline__ const uint16_t* WeightRow(const MatmulFewArgs& a, int tile, int half, int row) {
  const int64_t index = int64_t{tile} * kTileRows + half * kSlotRows + row;
  return index < a.w.rows ? a.w.data + index * a.k : nullptr;
}

// Sends for half `half` of pair number `pair` of the CTA: phase pair % phases of tile pair / phases. Every warp sends
// for one row.
__device__ __forceinline__ void SendFor(const MatmulFewArgs& a, const Share& share, int pair, int half, Shared& s) {
  const int phases = share.phases(a.k), tile = share.tile_begin + pair / phases, k = pair % phases * share.phase_k();
  if (tile >= share.tile_end || static_cast<int>(LaneIndex()) != half) return;
  const int row = static_cast<int>(WarpIndex()), left = a.k - k;
  const uint16_t* from = WeightRow(a, tile, half, row);
  Mbarrier* full = &s.full[pair % kPairs][half];
  uint32_t bytes = 0;
  if (from != nullptr) {
    bytes = static_cast<uint32_t>(left < share.phase_k() ? left : share.phase_k()) * 2;
    BulkCopyStreamed(s.slots[pair % kPairs][half] + row * kSlotStride, from + k, bytes, full);
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

using PhaseInput = Eight[kPhaseSpans];

// The input of phase `phase`.
__device__ __forceinline__ void LoadPhase(const MatmulFewArgs& a, const Share& share, int phase, PhaseInput& input) {
  const int warp = static_cast<int>(WarpIndex()), lane = static_cast<int>(LaneIndex());
#pragma unroll
  for (int i = 0; i < kPhaseSpans; ++i) {
    const int k = phase * share.phase_k() + warp * share.warp_k() + i * kSpan + lane % 4 * 8;
    input[i] = {};
    if (i < share.warp_spans && lane / 4 < a.rows && k < a.k)
      input[i] = Load8(a.x + static_cast<int64_t>(lane / 4) * a.k + k);
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
__device__ __forceinline__ void FinishTile(const MatmulFewArgs& a, int tile, int i,
                                           const float (&parts)[kWarps][kTileRows * kFewRows], BestLogit& best) {
  const int token = i % kFewRows, r = i / kFewRows;
  if (token >= a.rows) return;
  const int n = tile * kTileRows + r;
  if (n >= a.w.rows) return;
  float value = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) value += parts[w][i];
  if (kOutput == FewOutput::kHead) {
    if (a.softcap > 0.0f) value = a.softcap * tanhf(value / a.softcap);
    if (IsBetter(value, n, best)) best = {value, n};
  }
  a.y[static_cast<int64_t>(token) * a.w.rows + n] = value;
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

template <FewOutput kOutput, bool kOnePhase>
__global__ void __launch_bounds__(kThreads, 2) MatmulFewKernel(const MatmulFewArgs a) {
  Shared& s = *DynamicShared<Shared>();
  DependentsMayStart();
  const int tid = static_cast<int>(threadIdx.x), warp = tid / kWarpSize, lane = tid % kWarpSize;
  if (tid == 0) {
    for (int i = 0; i < 2 * kPairs; ++i) MbarrierInit(&s.full[i / 2][i % 2], kSlotRows);
    FenceBarrierInit();
  }
  __syncthreads();
  const Share share = ShareOf(a);
  for (int i = 0; i < 2 * kPairs; ++i) SendFor(a, share, i / 2, i % 2, s);
  WaitForEarlierKernels();
  PhaseInput input;
  if (kOnePhase) LoadPhase(a, share, 0, input);
  BestLogit best{0.0f, -1};
  int pair = 0;
  for (int tile = share.tile_begin; tile < share.tile_end; ++tile) {
    TileSums sums;
    for (int phase = 0; phase < (kOnePhase ? 1 : share.phases(a.k)); ++phase, ++pair) {
      if constexpr (!kOnePhase) {
        if (phase > 0) {
          __syncthreads();  // all have used the pair before
          for (int half = 0; half < 2; ++half) SendFor(a, share, pair - 1 + kPairs, half, s);
        }
        LoadPhase(a, share, phase, input);
      }
      AddPhase(s, share, pair, a.k - phase * share.phase_k(), input, sums);
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
    for (int half = 0; half < 2; ++half) SendFor(a, share, pair - 1 + kPairs, half, s);
    if (tid / 128 == buffer) FinishTile<kOutput>(a, tile, tid % 128, s.reduce[buffer], best);
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

template <FewOutput kOutput>
void LaunchShaped(const char* what, gpuStream stream, const MatmulFewArgs& a) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(MatmulFewCtas());
  shape.block = kThreads;
  shape.shared_bytes = sizeof(Shared);
  shape.dependent = true;
  Launch(what, a.k <= kPhaseK ? MatmulFewKernel<kOutput, true> : MatmulFewKernel<kOutput, false>, shape, stream, a);
}

}  // namespace

int MatmulFewCtas() {
  static const int ctas = [] {
    const std::optional<DeviceInfo> device = FindDevice(nullptr);
    return device ? device->multiprocessors : 1;
  }();
  return ctas;
}

void BestOfCtas(gpuStream stream, int rows, const BestLogit* best, int32_t* ids) {
  LaunchShape shape;
  shape.block = kFewRows * kWarpSize;
  shape.dependent = true;
  Launch("best of the logits", BestOfCtasKernel, shape, stream, MatmulFewCtas(), rows, best, ids);
}

void MultiplyFew(const char* what, gpuStream stream, const MatmulFewArgs& args) {
  LaunchShaped<FewOutput::kStore>(what, stream, args);
}

void MultiplyFewHead(const char* what, gpuStream stream, const MatmulFewArgs& args) {
  LaunchShaped<FewOutput::kHead>(what, stream, args);
}

}  // namespace lapidary::gpu
