#include "device/helper_kernels.h"

#include "kernels/gpu/device/async_copy.h"
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/cells.h"
#include "kernels/gpu/device/cluster.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"

namespace lapidary::gpu::testing {
namespace {

__global__ void WarpKernel(const float* values, WarpResults* out) {
  const unsigned i = threadIdx.x;
  const float value = values[i];
  const int lane = static_cast<int>(LaneIndex());
  WarpResults r;
  r.shuffle = WarpShuffle(value, (lane * 5 + 1) % 32);
  r.shuffle_xor = WarpShuffleXor(value, 3);
  r.shuffle_down = WarpShuffleDown(value, 7);
  r.shuffle_up = WarpShuffleUp(value, 7);
  r.sum = WarpSum(value);
  r.max = WarpMax(value);
  r.wide = WarpShuffleXor(static_cast<uint64_t>(i) << 40, 1);
  r.ballot = Ballot(lane % 3 == 0);
  r.any = WarpAny(lane == 31 && WarpIndex() == 1);
  r.all = WarpAll(lane < 32);
  WarpSync();
  out[i] = r;
}

__global__ void BlockSumKernel(const float* values, float* out) {
  LAPIDARY_SHARED(sums, float[32]);
  __shared__ float total;
  const float sum = WarpSum(values[blockIdx.x * blockDim.x + threadIdx.x]);
  if (LaneIndex() == 0) sums[WarpIndex()] = sum;
  __syncthreads();
  if (WarpIndex() == 0) {
    const float all = WarpSum(LaneIndex() < blockDim.x / 32 ? sums[LaneIndex()] : 0.0f);
    if (LaneIndex() == 0) total = all;
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

__global__ void Bf16Kernel(const float* values, Bf16Results* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const float next = values[(i + 1) % count];
  Bf16Results& r = out[i];
  r.rounded = FloatToBf16(values[i]);
  r.packed = PackBf16(values[i], next);
  SplitBf16Pair(values[i], next, r.terms);
  for (int term = 0; term < 3; ++term) {
    r.low_values[term] = LowBf16(r.terms[term]);
    r.high_values[term] = HighBf16(r.terms[term]);
  }
}

// One warp: out [16, 8] += a [16, 16] times b [8, 16] transposed, through shared memory.
__global__ void MmaKernel(const uint16_t* a, const uint16_t* b, float* out, bool transposed) {
  LAPIDARY_SHARED(a_tile, uint16_t[16 * 16]);
  LAPIDARY_SHARED(b_tile, uint16_t[8 * 16]);
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 256; i += 32) a_tile[i] = a[i];
  // Transposed: [16, 8].
  for (unsigned i = lane; i < 128; i += 32) b_tile[transposed ? i % 16 * 8 + i / 16 : i] = b[i];
  WarpSync();
  uint32_t fa[4], fb[2];
  LoadMatrixX4(fa, a_tile + lane % 16 * 16 + lane / 16 * 8);
  if (transposed) {
    LoadMatrixX2Trans(fb, b_tile + lane % 16 * 8);
  } else {
    LoadMatrixX2(fb, b_tile + lane % 8 * 16 + lane % 16 / 8 * 8);
  }
  const unsigned g = lane / 4, t = lane % 4;
  float d[4] = {out[g * 8 + 2 * t], out[g * 8 + 2 * t + 1], out[(g + 8) * 8 + 2 * t], out[(g + 8) * 8 + 2 * t + 1]};
  Mma16816(d, fa, fb[0], fb[1]);
  out[g * 8 + 2 * t] = d[0];
  out[g * 8 + 2 * t + 1] = d[1];
  out[(g + 8) * 8 + 2 * t] = d[2];
  out[(g + 8) * 8 + 2 * t + 1] = d[3];
}

__global__ void LoadMatrixKernel(const uint16_t* rows, uint32_t* out, bool transposed) {
  LAPIDARY_SHARED(tile, uint16_t[32 * 8]);
  for (unsigned i = threadIdx.x; i < 256; i += 32) tile[i] = rows[i];
  WarpSync();
  uint32_t r[4];
  if (transposed) {
    LoadMatrixX4Trans(r, tile + threadIdx.x * 8);
  } else {
    LoadMatrixX4(r, tile + threadIdx.x * 8);
  }
  for (unsigned i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = r[i];
}

constexpr int kStages = 3;
constexpr uint32_t kStageWords = 256;

// A producer warp streams `words` through a ring of stages; the consumer warps add one to each word.
__global__ void RingKernel(const uint32_t* words, uint32_t* out, int tiles) {
  uint32_t* stages = DynamicShared<uint32_t>();  // [kStages, kStageWords]
  LAPIDARY_SHARED(full, Mbarrier[kStages]);
  LAPIDARY_SHARED(empty, Mbarrier[kStages]);
  const unsigned consumers = blockDim.x / 32 - 1;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      MbarrierInit(&full[i], 1);
      MbarrierInit(&empty[i], consumers);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  const bool produces = WarpIndex() == consumers;
  if (produces && LaneIndex() != 0) return;
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    const uint32_t phase = static_cast<uint32_t>(tile / kStages) & 1;
    uint32_t* at = stages + stage * kStageWords;
    const uint32_t first = static_cast<uint32_t>(tile) * kStageWords;
    if (produces) {
      MbarrierWait(&empty[stage], phase ^ 1);
      BulkCopyStreamed(at, words + first, kStageWords * 2, &full[stage]);
      BulkCopy(at + kStageWords / 2, words + first + kStageWords / 2, kStageWords * 2, &full[stage]);
      MbarrierArriveExpectTx(&full[stage], kStageWords * 4);
    } else {
      MbarrierWait(&full[stage], phase);
      for (uint32_t i = threadIdx.x; i < kStageWords; i += consumers * 32) out[first + i] = at[i] + 1;
      WarpSync();
      if (LaneIndex() == 0) MbarrierArrive(&empty[stage]);
    }
  }
}

// Each thread copies its 16 bytes of every tile, one tile ahead; reads its neighbour's.
__global__ void CpAsyncKernel(const uint4* values, uint4* out, int tiles, int valid) {
  uint4* stages = DynamicShared<uint4>();  // [2, blockDim.x]
  const int n = static_cast<int>(blockDim.x), i = static_cast<int>(threadIdx.x);
  CpAsync16(stages + i, values + i);
  CpAsyncCommit();
  for (int tile = 0; tile < tiles; ++tile) {
    const int next = (tile + 1) * n + i;
    if (tile + 1 < tiles)
      CpAsync16OrZero(stages + (tile + 1) % 2 * n + i, values + (next < valid ? next : 0), next < valid);
    CpAsyncCommit();
    CpAsyncWait<1>();
    __syncthreads();
    out[tile * n + i] = stages[tile % 2 * n + (i + 1) % n];
    __syncthreads();
  }
}

// Warps 0 and 1 hand values to warps 2 and 3, which meet at a barrier of their own first.
__global__ void NamedBarrierKernel(const float* values, float* out) {
  LAPIDARY_SHARED(handed, float[64]);
  LAPIDARY_SHARED(summed, float[2]);
  const unsigned i = threadIdx.x;
  if (i < 64) {
    handed[i] = values[i];
    NamedBarrierArrive(1, 128);
    return;
  }
  NamedBarrier(1, 128);
  const float sum = WarpSum(handed[i - 64]);
  if (LaneIndex() == 0) summed[WarpIndex() - 2] = sum;
  NamedBarrier(2, 64);
  out[i - 64] = summed[0] + summed[1];
}

__global__ void AtomicsKernel(uint32_t* counters, uint64_t* largest) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  AtomicAdd(&counters[0], 1u);
  AtomicAdd(reinterpret_cast<int32_t*>(&counters[1]), -2);
  AtomicMax64(largest, (static_cast<uint64_t>(i * 7919 % 1009) << 32) | i);
  ThreadFence();
  __syncthreads();
  if (threadIdx.x == 0 && AtomicAdd(&counters[2], 1u) == gridDim.x - 1) counters[3] = counters[0];
}

__global__ void LoadKernel(const uint4* values, uint4* out) {
  const uint4 v = LoadGlobal16(values + threadIdx.x);
  out[threadIdx.x] = make_uint4(v.w, v.z, v.y, v.x);
}

__global__ void AddKernel(const float* x, float y, float* out, int count) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = x[i] + y;
}

__global__ void ClusterKernel(uint32_t* out) {
  LAPIDARY_SHARED(mine, uint32_t[32]);
  const unsigned blocks = 4, rank = ClusterRank();
  mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  ClusterSync();
  out[blockIdx.x * 32 + threadIdx.x] = *ClusterShared(&mine[threadIdx.x], (rank + 1) % blocks);
  ClusterSync();
}

// Three rounds: each block publishes 64 values and awaits those of all, the second warp in fours.
__global__ void ExchangeKernel(float* cells, float* out, uint32_t* stuck, bool publish_all) {
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  DependentsMayStart();
  WaitForEarlierKernels();
  Patience patience{stuck};
  float value = static_cast<float>(block * 64 + thread);
  for (int round = 0; round < 3; ++round, cells += blocks * 64) {
    patience.where = static_cast<uint32_t>(round + 1);
    if (publish_all || round < 2 || block > 0) {
      if (thread % 4 == 0 && thread >= 32) {
        Publish4(cells + block * 64 + thread, make_float4(value, value + 1.0f, value + 2.0f, value + 3.0f));
      } else if (thread < 32) {
        Publish(cells + block * 64 + thread, value);
      }
    }
    float sum = 0.0f;
    for (int other = 0; other < blocks; ++other) {
      const float* const from[1] = {cells + other * 64 + thread / 4 * 4};
      const bool wanted[1] = {true};
      Cells4 four[1];
      AwaitCells4(from, wanted, patience, four);
      sum += __uint_as_float(four[0].v[thread % 4]);
    }
    value = static_cast<float>(thread);  // of the next round, known without the sums
    out[(round * blocks + block) * 64 + thread] = sum;
  }
}

}  // namespace

void RunWarp(gpuStream stream, const float* values, WarpResults* out, unsigned threads) {
  Launch("RunWarp", WarpKernel, {.block = threads}, stream, values, out);
}
void RunBlockSum(gpuStream stream, const float* values, float* out, unsigned blocks, unsigned threads) {
  Launch("RunBlockSum", BlockSumKernel, {.grid_x = blocks, .block = threads}, stream, values, out);
}
void RunBf16(gpuStream stream, const float* values, Bf16Results* out, int count) {
  Launch("RunBf16", Bf16Kernel, {.grid_x = static_cast<unsigned>(count + 127) / 128, .block = 128}, stream, values, out,
         count);
}
void RunMma(gpuStream stream, const uint16_t* a, const uint16_t* b, float* out, bool transposed) {
  Launch("RunMma", MmaKernel, {.block = 32}, stream, a, b, out, transposed);
}
void RunLoadMatrix(gpuStream stream, const uint16_t* rows, uint32_t* out, bool transposed) {
  Launch("RunLoadMatrix", LoadMatrixKernel, {.block = 32}, stream, rows, out, transposed);
}
void RunRing(gpuStream stream, const uint32_t* words, uint32_t* out, int tiles) {
  Launch("RunRing", RingKernel, {.block = 160, .shared_bytes = kStages * kStageWords * 4}, stream, words, out, tiles);
}
void RunCpAsync(gpuStream stream, const void* values, void* out, int tiles, int valid) {
  Launch("RunCpAsync", CpAsyncKernel, {.block = 64, .shared_bytes = 2 * 64 * 16}, stream,
         static_cast<const uint4*>(values), static_cast<uint4*>(out), tiles, valid);
}
void RunNamedBarrier(gpuStream stream, const float* values, float* out) {
  Launch("RunNamedBarrier", NamedBarrierKernel, {.block = 128}, stream, values, out);
}
void RunAtomics(gpuStream stream, uint32_t* counters, uint64_t* largest, unsigned blocks) {
  Launch("RunAtomics", AtomicsKernel, {.grid_x = blocks, .block = 64}, stream, counters, largest);
}
void RunLoad(gpuStream stream, const void* values, void* out) {
  Launch("RunLoad", LoadKernel, {.block = 32}, stream, static_cast<const uint4*>(values), static_cast<uint4*>(out));
}
void RunAdd(gpuStream stream, const float* x, float y, float* out, int count) {
  Launch("RunAdd", AddKernel, {.grid_x = static_cast<unsigned>(count + 63) / 64, .block = 64, .dependent = true},
         stream, x, y, out, count);
}
void RunCluster(gpuStream stream, uint32_t* out, unsigned clusters) {
  Launch("RunCluster", ClusterKernel, {.grid_x = clusters * 4, .block = 32, .cluster = 4}, stream, out);
}

void RunExchange(gpuStream stream, float* cells, float* out, uint32_t* stuck, int blocks, bool publish_all) {
  Launch("RunExchange", ExchangeKernel,
         {.grid_x = static_cast<unsigned>(blocks), .block = 64, .dependent = true, .resident = true}, stream, cells,
         out, stuck, publish_all);
}

}  // namespace lapidary::gpu::testing
