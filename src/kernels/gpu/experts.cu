#include "kernels/gpu/experts.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/warp.h"
#include "kernels/gpu/expert_parts.h"
#include "kernels/gpu/row_vectors.h"

namespace lapidary::gpu {
namespace {

constexpr int kBlock = 256;
constexpr int kScoresPerLane = kMaxExperts / kWarpSize;

// A choice and how likely it is; the better one is likelier or, of two alike, the lower.
struct Candidate {
  float probability;
  int32_t expert;
};
__device__ __forceinline__ bool IsBetter(const Candidate& a, const Candidate& b) {
  return a.probability > b.probability || (a.probability == b.probability && a.expert < b.expert);
}

__device__ __forceinline__ Candidate BestOfWarp(Candidate best) {
#pragma unroll
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const Candidate other{WarpShuffleXor(best.probability, mask), WarpShuffleXor(best.expert, mask)};
    if (IsBetter(other, best)) best = other;
  }
  return best;
}

// probability[i] is of expert 32 i + lane; -1: no such expert.
__device__ __forceinline__ void Softmax(const RowInput& scores, int64_t row, int experts,
                                        float (&probability)[kScoresPerLane]) {
  const int lane = static_cast<int>(LaneIndex());
  float top = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kScoresPerLane; ++i) {
    const int expert = i * kWarpSize + lane;
    probability[i] = -1;
    if (expert >= experts) continue;
    probability[i] = Load1(scores, row, expert);
    top = fmaxf(top, probability[i]);
  }
  top = WarpMax(top);
#pragma unroll
  for (int i = 0; i < kScoresPerLane; ++i) {
    if (i * kWarpSize + lane >= experts) continue;
    probability[i] = expf(probability[i] - top);
    sum += probability[i];
  }
  sum = WarpSum(sum);
#pragma unroll
  for (int i = 0; i < kScoresPerLane; ++i) {
    if (i * kWarpSize + lane < experts) probability[i] /= sum;
  }
}

// A warp a row. Lane i keeps the i-th choice of each 32.
__global__ void __launch_bounds__(kBlock) ChooseKernel(RowCount rows, ExpertShape shape, RowInput scores,
                                                       const float* per_expert_scale, ExpertWorkspace::Parts parts) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t row = int64_t{blockIdx.x} * (kBlock / kWarpSize) + WarpIndex();
  if (row >= CountOf(rows)) return;
  const int lane = static_cast<int>(LaneIndex());
  float probability[kScoresPerLane];
  Softmax(scores, row, shape.experts, probability);
  float chosen = 0;
  for (int k = 0; k < shape.top_k; ++k) {
    Candidate best{-1.0f, kMaxExperts};
#pragma unroll
    for (int i = 0; i < kScoresPerLane; ++i) {
      const Candidate candidate{probability[i], i * kWarpSize + lane};
      if (IsBetter(candidate, best)) best = candidate;
    }
    best = BestOfWarp(best);
    // Scores that are not numbers leave nothing to choose from; the result is not a number either.
    if (best.expert >= shape.experts) best = {NAN, k};
#pragma unroll
    for (int i = 0; i < kScoresPerLane; ++i) {
      if (i * kWarpSize + lane == best.expert) probability[i] = -1;
    }
    chosen += best.probability;
    if (lane == 0) {
      parts.choice_expert[row * shape.top_k + k] = best.expert;
      parts.choice_weight[row * shape.top_k + k] = best.probability;
    }
  }
  WarpSync();
  for (int k = lane; k < shape.top_k; k += kWarpSize) {
    const int64_t choice = row * shape.top_k + k;
    parts.choice_weight[choice] = parts.choice_weight[choice] / chosen * per_expert_scale[parts.choice_expert[choice]];
  }
}

// Each choice's rank among its chunk's choices of the same expert, and their counts.
__global__ void __launch_bounds__(kChunkChoices)
    CountKernel(RowCount rows, ExpertShape shape, ExpertWorkspace::Parts parts) {
  LAPIDARY_SHARED(experts, int32_t[kChunkChoices]);
  DependentsMayStart();
  WaitForEarlierKernels();
  const int thread = static_cast<int>(threadIdx.x), choices = CountOf(rows) * shape.top_k;
  const int choice = static_cast<int>(blockIdx.x) * kChunkChoices + thread;
  const int32_t mine = choice < choices ? parts.choice_expert[choice] : -1;
  experts[thread] = mine;
  __syncthreads();
  int rank = 0;
  for (int i = 0; i < kChunkChoices; ++i) rank += i < thread && experts[i] == mine ? 1 : 0;
  if (mine >= 0) parts.slot_of_choice[choice] = rank;
  for (int expert = thread; expert < shape.experts; expert += kChunkChoices) {
    int count = 0;
    for (int i = 0; i < kChunkChoices; ++i) count += experts[i] == expert ? 1 : 0;
    parts.chunk_counts[static_cast<int>(blockIdx.x) * shape.experts + expert] = count;
  }
}

// An expert's counts [chunks], `stride` apart, become those of the chunks before; returns their sum. Several are read
// at once, as each read waits for memory.
__device__ __forceinline__ int SumChunks(int chunks, int stride, int32_t* counts) {
  constexpr int kAtOnce = 16;
  int sum = 0;
  for (int begin = 0; begin < chunks; begin += kAtOnce) {
    int32_t here[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) here[i] = begin + i < chunks ? counts[(begin + i) * stride] : 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i < chunks) counts[(begin + i) * stride] = sum;
      sum += here[i];
    }
  }
  return sum;
}

// One block of a thread an expert: where the experts' slots begin, and the tiles.
__global__ void __launch_bounds__(kMaxExperts)
    PlaceKernel(int chunks, int tile_rows, ExpertShape shape, ExpertWorkspace::Parts parts) {
  LAPIDARY_SHARED(counts, int32_t[kMaxExperts]);
  DependentsMayStart();
  WaitForEarlierKernels();
  const int expert = static_cast<int>(threadIdx.x);
  const int mine = expert < shape.experts ? SumChunks(chunks, shape.experts, parts.chunk_counts + expert) : 0;
  counts[expert] = mine;
  __syncthreads();
  int first_slot = 0, first_tile = 0;
  for (int i = 0; i < expert; ++i) {
    first_slot += counts[i];
    first_tile += (counts[i] + tile_rows - 1) / tile_rows;
  }
  if (expert >= shape.experts) return;
  parts.first_slot[expert] = first_slot;
  int tile = first_tile;
  for (int done = 0; done < mine; done += tile_rows, ++tile) {
    parts.tiles[tile] = {expert, first_slot + done, mine - done < tile_rows ? mine - done : tile_rows};
  }
  if (expert == shape.experts - 1) *parts.tile_count = tile;
}

__global__ void __launch_bounds__(kChunkChoices)
    SortKernel(RowCount rows, ExpertShape shape, ExpertWorkspace::Parts parts) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int chunk = static_cast<int>(blockIdx.x), choice = chunk * kChunkChoices + static_cast<int>(threadIdx.x);
  if (choice >= CountOf(rows) * shape.top_k) return;
  const int32_t expert = parts.choice_expert[choice];
  const int32_t slot =
      parts.first_slot[expert] + parts.chunk_counts[chunk * shape.experts + expert] + parts.slot_of_choice[choice];
  parts.slot_of_choice[choice] = slot;
  parts.choice_of_slot[slot] = choice;
}

// out = the weighted sum of a row's results, a vector a thread.
__global__ void __launch_bounds__(kBlock)
    CombineKernel(RowCount rows, ExpertShape shape, ExpertWorkspace::Parts parts, float* out) {
  DependentsMayStart();
  WaitForEarlierKernels();
  const int64_t at = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kVector, row = at / shape.hidden;
  if (row >= CountOf(rows)) return;
  Float8 sum{};
  for (int k = 0; k < shape.top_k; ++k) {
    const int64_t choice = row * shape.top_k + k;
    const float weight = parts.choice_weight[choice];
    const Float8 result =
        Load8(parts.results + int64_t{parts.slot_of_choice[choice]} * shape.hidden + at % shape.hidden);
    for (int i = 0; i < kVector; ++i) sum.v[i] += weight * result.v[i];
  }
  Store8(out + at, sum);
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

LaunchShape Shape(int64_t blocks, int threads) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(blocks);
  shape.block = static_cast<unsigned>(threads);
  shape.dependent = true;
  return shape;
}

// Hands out aligned pieces of memory, or only adds up their sizes.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<std::byte*>(base)) {}
  template <typename T>
  T* Take(int64_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return piece;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

ExpertWorkspace::Parts Carve(Carver& carver, const ExpertShape& shape, int32_t max_rows) {
  const int64_t choices = int64_t{max_rows} * shape.top_k;
  ExpertWorkspace::Parts parts{};
  parts.choice_expert = carver.Take<int32_t>(choices);
  parts.choice_weight = carver.Take<float>(choices);
  parts.slot_of_choice = carver.Take<int32_t>(choices);
  parts.choice_of_slot = carver.Take<int32_t>(choices);
  parts.chunk_counts = carver.Take<int32_t>(CeilDiv(choices, kChunkChoices) * shape.experts);
  parts.first_slot = carver.Take<int32_t>(shape.experts);
  parts.tile_count = carver.Take<int32_t>(1);
  // Fewer rows may be cut into smaller, so more, tiles.
  parts.tiles = carver.Take<ExpertTile>(choices / kFewTileRows + shape.experts);
  parts.results = carver.Take<float>(choices * shape.hidden);
  parts.hi = carver.Take<uint16_t>(choices * shape.width);
  parts.lo = carver.Take<uint16_t>(choices * shape.width);
  parts.third = carver.Take<uint16_t>(choices * shape.width);
  return parts;
}

}  // namespace

size_t ExpertWorkspace::SizeBytes(const ExpertShape& shape, int32_t max_rows) {
  Carver carver(nullptr);
  Carve(carver, shape, max_rows);
  return carver.used();
}

ExpertWorkspace::ExpertWorkspace(const ExpertShape& shape, int32_t max_rows)
    : shape_(shape), memory_(SizeBytes(shape, max_rows)) {
  if (shape.experts < 1 || shape.experts > kMaxExperts || shape.top_k < 1 || shape.top_k > shape.experts) {
    Throw(ErrorKind::kUnsupported, "experts on the GPU: found the best " + std::to_string(shape.top_k) + " of " +
                                       std::to_string(shape.experts) + ", wanted at most " +
                                       std::to_string(kMaxExperts));
  }
  Carver carver(memory_.data());
  parts_ = std::make_unique<Parts>(Carve(carver, shape, max_rows));
}

ExpertWorkspace::~ExpertWorkspace() = default;
ExpertWorkspace::ExpertWorkspace(ExpertWorkspace&&) noexcept = default;
ExpertWorkspace& ExpertWorkspace::operator=(ExpertWorkspace&&) noexcept = default;

void RouteExperts(gpuStream stream, RowCount rows, RowInput scores, const float* per_expert_scale,
                  const ExpertWorkspace& workspace) {
  if (rows.max == 0) return;
  const ExpertShape& shape = workspace.shape();
  const ExpertWorkspace::Parts& parts = workspace.parts();
  const int64_t chunks = CeilDiv(int64_t{rows.max} * shape.top_k, kChunkChoices);
  Launch("ChooseExperts", ChooseKernel, Shape(CeilDiv(int64_t{rows.max} * kWarpSize, kBlock), kBlock), stream, rows,
         shape, scores, per_expert_scale, parts);
  Launch("CountExperts", CountKernel, Shape(chunks, kChunkChoices), stream, rows, shape, parts);
  const int64_t threads = CeilDiv(shape.experts, kWarpSize) * kWarpSize;
  Launch("PlaceExperts", PlaceKernel, Shape(1, static_cast<int>(threads)), stream, static_cast<int>(chunks),
         ExpertTileRows(shape, rows.max), shape, parts);
  Launch("SortExperts", SortKernel, Shape(chunks, kChunkChoices), stream, rows, shape, parts);
}

void RunExperts(gpuStream stream, RowCount rows, const RowTerms& x, const ExpertWeights& weights,
                const ExpertWorkspace& workspace, float* out) {
  if (rows.max == 0) return;
  ExpertProducts(stream, rows.max, x, weights, workspace);
  const int64_t vectors = int64_t{rows.max} * workspace.shape().hidden / kVector;
  Launch("CombineExperts", CombineKernel, Shape(CeilDiv(vectors, kBlock), kBlock), stream, rows, workspace.shape(),
         workspace.parts(), out);
}

}  // namespace lapidary::gpu
