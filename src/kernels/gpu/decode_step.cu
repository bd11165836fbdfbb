#include "kernels/gpu/decode_step.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/gpu/decode_step_attention.h"
#include "kernels/gpu/decode_step_block.h"
#include "kernels/gpu/decode_step_finish.h"
#include "kernels/gpu/decode_step_products.h"
#include "kernels/gpu/decode_step_residual.h"
#include "kernels/gpu/device/dependent_launch.h"

namespace lapidary::gpu {
namespace decode_step {
namespace {

// The thread that fills the ring. It waits for slots, never for activations.
struct Loader {
  Mbarrier *full, *empty;
  unsigned char* data;
  int slots;
  int slot = 0, landed = 0;
  uint32_t parity = 1, landed_parity = 0;
  int under_way = 0;

  __device__ __forceinline__ static void Next(int& at, uint32_t& parity, int slots) {
    if (++at < slots) return;
    at = 0;
    parity ^= 1;
  }

  // `count` rows of row_bytes each, `stride` elements apart, to the next slot.
  __device__ __forceinline__ void Fill(const uint16_t* rows, int count, uint32_t row_bytes, int64_t stride) {
    if (under_way == kSlotsInFlight) {
      MbarrierWait(&full[landed], landed_parity);
      Next(landed, landed_parity, slots);
      --under_way;
    }
    MbarrierWait(&empty[slot], parity);
    unsigned char* to = data + slot * kSlotBytes;
    const uint32_t bytes = row_bytes * static_cast<uint32_t>(count);
    if (stride * 2 == row_bytes) {
      BulkCopyStreamed(to, rows, bytes, &full[slot]);
    } else {
#pragma unroll 1
      for (int i = 0; i < count; ++i) BulkCopyStreamed(to + i * row_bytes, rows + i * stride, row_bytes, &full[slot]);
    }
    MbarrierArriveExpectTx(&full[slot], bytes);
    ++under_way;
    Next(slot, parity, slots);
  }

  template <int kRowSlots>
  __device__ __forceinline__ void FillProduct(const uint16_t* weights, const Share& share, bool gated) {
    const int group = 2 * kGroupTiles<kRowSlots>, k = share.of.k;
#pragma unroll 1
    for (int first = 0; first < share.halves; first += group) {
      const int end = first + group < share.halves ? first + group : share.halves;
#pragma unroll 1
      for (int phase = 0; phase < share.phases; ++phase) {
        const auto row_bytes = static_cast<uint32_t>(share.KOfPhase(phase)) * 2;
        const int slot_rows = 1 << share.slot_rows_log2;
#pragma unroll 1
        for (int half = first; half < end; ++half) {
          const int count = share.RowsOfHalf(half, gated);
          const int unit = share.row_begin + (gated ? half / 2 : half) * kHalfRows;
          const int64_t row = gated && half % 2 == 1 ? share.of.rows / 2 + unit : unit;
          const uint16_t* from = weights + row * k + share.k_begin + phase * share.phase_k;
#pragma unroll 1
          for (int i = 0; i < count; i += slot_rows)
            Fill(from + int64_t{i} * k, count - i < slot_rows ? count - i : slot_rows, row_bytes, k);
        }
      }
    }
  }

  template <int kRowSlots>
  __device__ __forceinline__ void FillStep(const DecodeStepArgs& a, Shared<kRowSlots>& s) {
    FetchLayer(a, 0, s.loader_layer, 0, 1);
    const auto begin = [&](int l) {
      CpAsyncWait<0>();
      FetchLayer(a, l + 1, s.loader_layer, 0, 1);
    };
    ForEachProduct(a, begin, [&](int l, DecodeMatrix matrix) {
      const DecodeLayer& layer = s.loader_layer[l % 2];
      const Share share = ShareOf(s.shares, layer.shape, matrix);
      FillProduct<kRowSlots>(matrix == DecodeMatrix::kHead ? a.head : layer.weights[static_cast<int>(matrix)], share,
                             IsGated(matrix));
    });
  }
};

__device__ __forceinline__ void StoreEmpty4(float* cells) {
  *reinterpret_cast<uint4*>(cells) = make_uint4(kEmptyCell, kEmptyCell, kEmptyCell, kEmptyCell);
}

// One warp of each block: empties the cells that the launch before used, for the launch after.
__device__ __forceinline__ void EmptyCells(const DecodeStepArgs& a, uint32_t set) {
  float* cells = a.cells + set * a.set_cells;
  const int rows = a.state->used[set].rows;
  for (int l = 0; l < a.layers; ++l) {
    const DecodeLayer& layer = a.layer[l];
    const DecodeAttention& kind = a.kinds[layer.kind];
    const int tiles = kind.kv_heads * kind.tiles;
    for (int row = 0; row < rows; ++row) {
      const int segments = SegmentsAt(a.state->used[set].positions[row], kind.window, kind.max_segments);
      const int count = layer.cells.partials + segments * tiles * kDecodeTileHeads * (kind.head_dim + 2);
      float* begin = cells + layer.cells.layer + int64_t{row} * layer.cells.row_cells;
      const int stride = static_cast<int>(gridDim.x) * kWarpSize * 4;
      for (int i = (static_cast<int>(blockIdx.x) * kWarpSize + static_cast<int>(LaneIndex())) * 4; i < count;
           i += stride)
        StoreEmpty4(begin + i);
    }
  }
}

// A step as the consumers go through it.
template <int kRowSlots, bool kBf16>
struct Step {
  Context<kRowSlots>& c;
  const DecodeStepArgs& a;
  Branch branch{};
  Stream<kRowSlots> stream{};

  __device__ __forceinline__ explicit Step(Context<kRowSlots>& context) : c(context), a(context.args) {}

  __device__ __forceinline__ void Run() {
    c.At(StageOf(DecodeMatrix::kQkv), 0);
    FetchLayer(a, 0, c.shared.layer, c.thread, kConsumers);
    CpAsyncWait<0>();
    c.Sync();
    ForEachProduct(
        a, [](int) {}, [&](int l, DecodeMatrix matrix) { Take(l, c.shared.layer[l % 2], matrix); });
    for (int half = 0; half < 2; ++half) NamedBarrier(kSumsEmpty + half, kConsumers + kFinishers);
  }

  // One product: its input comes from the stream, from attention or from the product before it; its outputs are
  // published, and those that make a branch are awaited where that joins the stream.
  __device__ __forceinline__ void Take(int l, const DecodeLayer& layer, DecodeMatrix matrix) {
    const int mark = static_cast<int>(matrix) * kDecodeMarksOfProduct;
    c.At(StageOf(matrix), l);
    c.Mark(l, mark);
    if (TakesStream(matrix)) {
      JoinBranch(l, layer, matrix);
    } else if (matrix == DecodeMatrix::kO) {
      Attention<kRowSlots, kBf16>(c, layer, l).Run();
      c.At(StageOf(matrix), l);
    }
    const Share share = ShareOf(c.shared.shares, layer.shape, matrix);
    Multiply(c, share, IsGated(matrix), [&](int phase, Activations<kRowSlots>& x) {
      LoadInput(l, layer, matrix, share, phase, x);
      if (phase == 0) c.Mark(l, mark + 1);
    });
    if (!TakesStream(matrix)) MakeBranch(layer, matrix, share.of.parts);
  }

  // The branch joins the stream, which then is in shared memory.
  __device__ __forceinline__ void JoinBranch(int l, const DecodeLayer& layer, DecodeMatrix matrix) {
    const float* norm = matrix == DecodeMatrix::kHead ? a.final_norm : layer.norms[static_cast<int>(matrix)];
    c.Sync();  // all have loaded their input of the product of the stream before
    if (matrix == DecodeMatrix::kGateUp) FetchLayer(a, l + 1, c.shared.layer, c.thread, kConsumers);
    Join(c, branch, norm, stream);
    if (blockIdx.x == 0 && c.Warp() == 0)
      CheckStream(c, matrix == DecodeMatrix::kGateUp || matrix == DecodeMatrix::kPerLayerGate ? l + 2 : l + 1);
  }

  __device__ __forceinline__ void LoadInput(int l, const DecodeLayer& layer, DecodeMatrix matrix, const Share& share,
                                            int phase, Activations<kRowSlots>& x) {
    const int begin = phase * share.phase_k, count = share.KOfPhase(phase);
    const bool from_stream = TakesStream(matrix);
    if (!from_stream) {
      const int output =
          matrix == DecodeMatrix::kO ? layer.cells.attention : layer.cells.outputs[static_cast<int>(matrix) - 1];
      const float* cells = c.Row(layer, 0) + output + share.k_begin + begin;
      const float* factor =
          matrix == DecodeMatrix::kPerLayerProjection ? a.per_layer + l * a.per_layer_width + begin : nullptr;
      if constexpr (kRowSlots == 1) {
        AwaitTerms(c, cells, count, factor);
      } else {
        AwaitRows(c, cells, layer.cells.row_cells, count, factor, int64_t{a.layers} * a.per_layer_width, x);
      }
    }
    if constexpr (kRowSlots == 1) {
      LoadTerms(c, from_stream ? begin : 0, count, x);
    } else if (from_stream) {
      LoadRows(c, begin, count, matrix != DecodeMatrix::kPerLayerGate, x);
    }
  }

  // The outputs of a product become the branch. Each block awaits all of a branch; of many rows only the sums of its
  // parts, which blocks share the work of.
  __device__ __forceinline__ void MakeBranch(const DecodeLayer& layer, DecodeMatrix matrix, int parts) {
    const auto index = static_cast<int>(matrix);
    float *base = c.Row(layer, 0), *cells = base + layer.cells.outputs[index];
    if (kRowSlots > 1 && parts > 1) {
      float* sums = base + layer.cells.sums[index];
      SumParts(c, cells, sums, layer.cells.row_cells, parts);
      cells = sums, parts = 1;
    }
    const bool ends_layer =
        matrix == DecodeMatrix::kPerLayerProjection || (matrix == DecodeMatrix::kDown && a.per_layer_width == 0);
    branch = {cells, layer.cells.row_cells, parts, layer.norms[index], ends_layer ? layer.scale : 1.0f};
  }
};

template <int kRowSlots>
__device__ __forceinline__ void InitRing(Shared<kRowSlots>& s, int slots) {
  for (int i = 0; i < slots; ++i) {
    MbarrierInit(&s.full[i], 1);
    MbarrierInit(&s.empty[i], kConsumerWarps);
  }
  FenceBarrierInit();
}

// The last block to come notes what this launch used, and turns to the other set.
__device__ __forceinline__ void EndStep(const DecodeStepArgs& a, uint32_t turn, const int32_t* positions) {
  ThreadFence();
  if (AtomicAdd(&a.state->finished, 1u) != gridDim.x - 1) return;
  a.state->finished = 0;
  a.state->used[turn].rows = a.rows;
  for (int i = 0; i < a.rows; ++i) a.state->used[turn].positions[i] = positions[i];
  a.state->turn = turn ^ 1;
}

template <int kRowSlots, bool kBf16>
__global__ void __launch_bounds__(kThreads, 1) DecodeStepKernel(const __grid_constant__ DecodeStepArgs a, int slots) {
  Shared<kRowSlots>& s = *DynamicShared<Shared<kRowSlots>>();
  unsigned char* data = reinterpret_cast<unsigned char*>(&s) + (sizeof(Shared<kRowSlots>) + 127) / 128 * 128;
  DependentsMayStart();
  const int warp = static_cast<int>(WarpIndex());
  if (threadIdx.x == 0) InitRing(s, slots);
  MakeShares(a, s.shares);
  __syncthreads();
  if (warp >= kConsumerWarps) {
    LowerRegisters<kOtherRegisters>();
    if (warp == kLoaderWarp) {
      if (LaneIndex() == 0) Loader{s.full, s.empty, data, slots}.FillStep(a, s);
      return;
    }
    WaitForEarlierKernels();
    const uint32_t turn = a.state->turn;
    if (warp == kEmptierWarp) {
      EmptyCells(a, turn ^ 1);
      NamedBarrierArrive(kEndBarrier, 2 * kWarpSize);
      return;
    }
    Context<kRowSlots> context{a, s, {}, a.cells + turn * a.set_cells, {a.stuck}};
    context.thread = static_cast<int>(threadIdx.x) - kFinisherWarp * kWarpSize;
    Finisher<kRowSlots>(context).Run();
    return;
  }
  RaiseRegisters<kConsumerRegisters>();
  WaitForEarlierKernels();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < a.rows) {
    s.positions[thread] = a.step.positions[thread];
    s.sequences[thread] = a.step.sequences[thread];
  }
  const uint32_t turn = a.state->turn;
  Context<kRowSlots> context{a, s, {s.full, s.empty, data, slots}, a.cells + turn * a.set_cells, {a.stuck}};
  Step<kRowSlots, kBf16>(context).Run();
  if (warp > 0) return;
  NamedBarrier(kEndBarrier, 2 * kWarpSize);
  if (thread == 0) EndStep(a, turn, s.positions);
}

// Bytes of a block's shared memory before the ring, and the slots that the rest of `all` holds.
template <int kRowSlots>
constexpr int64_t kFixedBytes = (sizeof(Shared<kRowSlots>) + 127) / 128 * 128;
template <int kRowSlots>
int64_t SlotsIn(int64_t all) {
  return std::min<int64_t>((all - kFixedBytes<kRowSlots>) / kSlotBytes, kMostSlots);
}

template <int kRowSlots, bool kBf16>
void LaunchStep(gpuStream stream, const DecodeStepArgs& args) {
  static const std::optional<DeviceInfo> device = FindDevice(nullptr);
  const int64_t all = device ? device->shared_bytes_per_block : 0, slots = SlotsIn<kRowSlots>(all);
  if (slots < kLeastSlots) {
    Throw(ErrorKind::kUnsupported, "decode_step: found " + std::to_string(all) +
                                       " bytes of shared memory in a block, wanted " +
                                       std::to_string(kFixedBytes<kRowSlots> + kLeastSlots * kSlotBytes));
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(MatmulFewCtas());
  shape.block = kThreads;
  shape.shared_bytes = static_cast<size_t>(kFixedBytes<kRowSlots> + slots * kSlotBytes);
  shape.dependent = true;
  shape.resident = true;
  Launch("decode_step", DecodeStepKernel<kRowSlots, kBf16>, shape, stream, args, static_cast<int>(slots));
}

}  // namespace
}  // namespace decode_step

int DecodeStepParts(int64_t k) { return decode_step::PartsOf(k, MatmulFewCtas()); }

int DecodeSegments(int position, int window, int max_segments) {
  return decode_step::SegmentsAt(position, window, max_segments);
}

bool DecodeStepFits(int64_t shared_bytes) {
  using namespace decode_step;
  return std::min(SlotsIn<1>(shared_bytes), SlotsIn<kFewRows>(shared_bytes)) >= kLeastSlots;
}

void DecodeStep(gpuStream stream, const DecodeStepArgs& args) {
  if (args.hidden > kDecodeStepWidth) {
    Throw(ErrorKind::kInvalidArgument, "decode_step: found a residual stream of " + std::to_string(args.hidden) +
                                           " values, wanted at most " + std::to_string(kDecodeStepWidth));
  }
  using namespace decode_step;
  if (args.rows == 1) {
    args.is_bf16 ? LaunchStep<1, true>(stream, args) : LaunchStep<1, false>(stream, args);
  } else {
    args.is_bf16 ? LaunchStep<kFewRows, true>(stream, args) : LaunchStep<kFewRows, false>(stream, args);
  }
}

std::string NameOfStuck(uint32_t stuck) {
  static constexpr const char* kNames[] = {"?",
                                           "attention",
                                           "merging attention",
                                           "qkv_proj",
                                           "o_proj",
                                           "gate_up_proj",
                                           "down_proj",
                                           "per_layer_input_gate",
                                           "per_layer_projection",
                                           "embed_tokens"};
  const uint32_t stage = std::min<uint32_t>(stuck >> 16, std::size(kNames) - 1);
  return std::string(kNames[stage]) + " of layer " + std::to_string(static_cast<int>(stuck & 0xffff) - 1);
}

}  // namespace lapidary::gpu
