#include "kernels/gpu/decode_step.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/gpu/decode_step_attention.h"
#include "kernels/gpu/decode_step_block.h"
#include "kernels/gpu/decode_step_products.h"
#include "kernels/gpu/decode_step_residual.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "kernels/gpu/device/gelu.h"

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
      for (int i = 0; i < count; ++i) BulkCopyStreamed(to + i * row_bytes, rows + i * stride, row_bytes, &full[slot]);
    }
    MbarrierArriveExpectTx(&full[slot], bytes);
    ++under_way;
    Next(slot, parity, slots);
  }

  template <int kRowSlots>
  __device__ __forceinline__ void FillProduct(const Product& p, bool gated) {
    const Share share = ShareOf(p, gated);
    const int group = 2 * kGroupTiles<kRowSlots>;
    for (int first = 0; first < share.halves; first += group) {
      const int end = first + group < share.halves ? first + group : share.halves;
      for (int phase = 0; phase < share.phases; ++phase) {
        const auto row_bytes = static_cast<uint32_t>(share.KOfPhase(phase)) * 2;
        const int slot_rows = 1 << share.slot_rows_log2;
        for (int half = first; half < end; ++half) {
          const int count = share.RowsOfHalf(half, gated);
          const int unit = share.row_begin + (gated ? half / 2 : half) * kHalfRows;
          const int64_t row = gated && half % 2 == 1 ? p.rows / 2 + unit : unit;
          const uint16_t* from = p.w + row * p.k + share.k_begin + phase * share.phase_k;
          for (int i = 0; i < count; i += slot_rows)
            Fill(from + int64_t{i} * p.k, count - i < slot_rows ? count - i : slot_rows, row_bytes, p.k);
        }
      }
    }
  }

  template <int kRowSlots>
  __device__ __forceinline__ void FillStep(const DecodeStepArgs& a) {
    const auto fill = [&](const DecodeLayer& layer, Matrix matrix) {
      FillProduct<kRowSlots>(ProductOf(a, layer, matrix), IsGated(matrix));
    };
    for (int l = 0; l < a.layers; ++l) {
      const DecodeLayer& layer = a.layer[l];
      fill(layer, Matrix::kQkv);
      fill(layer, Matrix::kO);
      fill(layer, Matrix::kGateUp);
      fill(layer, Matrix::kDown);
      if (layer.per_layer_gate == nullptr) continue;
      fill(layer, Matrix::kPerLayerGate);
      fill(layer, Matrix::kPerLayerProjection);
    }
    FillProduct<kRowSlots>({a.head, a.vocab, a.hidden}, false);
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
    const int tiles = kind.kv_heads * ((kind.heads / kind.kv_heads + kDecodeTileHeads - 1) / kDecodeTileHeads);
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

__device__ __forceinline__ bool IsBetter(float value, int32_t id, const BestLogit& than) {
  return value > than.value || (value == than.value && id < than.id) || (than.id < 0 && value == value);
}

// A step as the consumers go through it.
template <int kRowSlots, bool kBf16>
struct Step {
  Context<kRowSlots>& c;
  const DecodeStepArgs& a;
  Branch branch{};

  __device__ __forceinline__ explicit Step(Context<kRowSlots>& context) : c(context), a(context.args) {}

  __device__ __forceinline__ void Run() {
    c.At(Stage::kQkv, 0);
    Begin(c);
    for (int l = 0; l < a.layers; ++l) {
      const DecodeLayer& layer = a.layer[l];
      AttentionBranch(l, layer);
      FeedForward(l, layer);
      if (layer.per_layer_gate != nullptr) PerLayerBranch(l, layer);
      branch.scale = layer.scale;
    }
    Head();
  }

  // The branch joins the stream, which then is in shared memory.
  __device__ __forceinline__ void JoinBranch(Stage stage, int layer, const float* next_norm, int place) {
    c.At(stage, layer);
    FetchNorm(c, next_norm);
    if (branch.cells != nullptr) Join(c, branch);
    CpAsyncWait<0>();
    c.Sync();
    CheckStream(c, place);
  }

  // y = stream W^T, with kNormed of the stream times the norm's weight; finish as of FinishGroup, without the norm's
  // factor.
  template <bool kGated, bool kNormed, typename Finish>
  __device__ __forceinline__ void MultiplyStream(const Product& product, const Finish& finish) {
    const Share share = ShareOf(product, kGated);
    Multiply<kRowSlots, kGated>(
        c, share,
        [&](int phase, Activations& x) { LoadHidden<kNormed>(c, phase * share.phase_k, share.KOfPhase(phase), x); },
        finish);
  }
  __device__ __forceinline__ float StreamFactor(int token) const { return NormFactor(c, c.shared.squares[1], token); }

  // A branch from what lies in cells.
  __device__ __forceinline__ void MakeBranch(const DecodeLayer& layer, Matrix matrix, int32_t from, int32_t to,
                                             const float* norm, const float* factor = nullptr,
                                             int64_t factor_stride = 0) {
    const Product product = ProductOf(a, layer, matrix);
    const Share share = ShareOf(product, false);
    float* base = c.Row(layer, 0);
    const int64_t stride = layer.cells.row_cells;
    Multiply<kRowSlots, false>(
        c, share,
        [&](int phase, Activations& x) {
          AwaitActivations(c, base + from + share.k_begin + phase * share.phase_k, stride, share.KOfPhase(phase),
                           factor, factor_stride, x);
        },
        [&](int n, int token, float value) { Publish(base + token * stride + to + share.part * a.hidden + n, value); });
    branch = {base + to, stride, product.parts, norm, 1.0f};
  }

  __device__ __forceinline__ void AttentionBranch(int l, const DecodeLayer& layer) {
    JoinBranch(Stage::kQkv, l, layer.input_norm, l + 1);
    MultiplyStream<false, true>(ProductOf(a, layer, Matrix::kQkv), [&](int n, int token, float value) {
      Publish(c.Row(layer, token) + layer.cells.qkv + n, value * StreamFactor(token));
    });
    Attention<kRowSlots, kBf16>(c, layer).Run(l);
    c.At(Stage::kO, l);
    MakeBranch(layer, Matrix::kO, layer.cells.attention, layer.cells.o, layer.post_attention_norm);
  }

  __device__ __forceinline__ void FeedForward(int l, const DecodeLayer& layer) {
    JoinBranch(Stage::kGateUp, l, layer.pre_feedforward_norm, l + 2);
    MultiplyStream<true, true>(ProductOf(a, layer, Matrix::kGateUp), [&](int n, int token, float gate, float up) {
      const float factor = StreamFactor(token);
      Publish(c.Row(layer, token) + layer.cells.gated + n, GeluTanh(gate * factor) * (up * factor));
    });
    c.At(Stage::kDown, l);
    MakeBranch(layer, Matrix::kDown, layer.cells.gated, layer.cells.down, layer.post_feedforward_norm);
  }

  __device__ __forceinline__ void PerLayerBranch(int l, const DecodeLayer& layer) {
    JoinBranch(Stage::kPerLayerGate, l, nullptr, l + 2);
    MultiplyStream<false, false>(ProductOf(a, layer, Matrix::kPerLayerGate), [&](int n, int token, float value) {
      Publish(c.Row(layer, token) + layer.cells.per_layer_gate + n, GeluTanh(value));
    });
    c.At(Stage::kPerLayer, l);
    MakeBranch(layer, Matrix::kPerLayerProjection, layer.cells.per_layer_gate, layer.cells.per_layer,
               layer.post_per_layer_norm, a.per_layer + l * a.per_layer_width, int64_t{a.layers} * a.per_layer_width);
  }

  __device__ __forceinline__ void Head() {
    JoinBranch(Stage::kHead, a.layers, a.final_norm, a.layers + 1);
    BestLogit best{0.0f, -1};
    MultiplyStream<false, true>({a.head, a.vocab, a.hidden}, [&](int n, int token, float value) {
      value *= StreamFactor(token);
      if (a.softcap > 0.0f) value = a.softcap * tanhf(value / a.softcap);
      a.logits[int64_t{token} * a.vocab + n] = value;
      if (IsBetter(value, n, best)) best = {value, n};
    });
    c.Sync();  // the sums are done with
    StoreBest(best);
  }

  // The best of each row: thread i has outputs of row i % kRowSlots.
  __device__ __forceinline__ void StoreBest(const BestLogit& mine) {
    const int i = c.thread;
    c.shared.best[i] = mine;
    c.Sync();
    if (i >= a.rows) return;
    BestLogit best = mine;
    for (int other = i + kRowSlots; other < kConsumers; other += kRowSlots) {
      const BestLogit& b = c.shared.best[other];
      if (b.id >= 0 && IsBetter(b.value, b.id, best)) best = b;
    }
    a.best[static_cast<int64_t>(blockIdx.x) * kFewRows + i] = best;
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
  __syncthreads();
  if (warp == kConsumerWarps) {
    if (LaneIndex() == 0) Loader{s.full, s.empty, data, slots}.template FillStep<kRowSlots>(a);
    return;
  }
  WaitForEarlierKernels();
  if (warp > kConsumerWarps) {
    EmptyCells(a, a.state->turn ^ 1);
    NamedBarrierArrive(kEndBarrier, 2 * kWarpSize);
    return;
  }
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

template <int kRowSlots, bool kBf16>
void LaunchStep(gpuStream stream, const DecodeStepArgs& args) {
  static const std::optional<DeviceInfo> device = FindDevice(nullptr);
  const int64_t all = device ? device->shared_bytes_per_block : 0;
  constexpr int64_t kFixed = (sizeof(Shared<kRowSlots>) + 127) / 128 * 128;
  const int64_t slots = std::min<int64_t>((all - kFixed) / kSlotBytes, kMostSlots);
  if (slots < kLeastSlots) {
    Throw(ErrorKind::kUnsupported, "decode_step: found " + std::to_string(all) +
                                       " bytes of shared memory in a block, wanted " +
                                       std::to_string(kFixed + kLeastSlots * kSlotBytes));
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(MatmulFewCtas());
  shape.block = kThreads;
  shape.shared_bytes = static_cast<size_t>(kFixed + slots * kSlotBytes);
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
                                           "o_proj",
                                           "gate_up_proj",
                                           "down_proj",
                                           "per_layer_input_gate",
                                           "per_layer_projection",
                                           "qkv_proj",
                                           "embed_tokens"};
  const uint32_t stage = std::min<uint32_t>(stuck >> 16, std::size(kNames) - 1);
  return std::string(kNames[stage]) + " of layer " + std::to_string(static_cast<int>(stuck & 0xffff) - 1);
}

}  // namespace lapidary::gpu
