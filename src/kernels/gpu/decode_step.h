#pragma once

#include <cstdint>
#include <string>

#include "kernels/gpu/kv_cache.h"
#include "kernels/gpu/matmul_few.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// The widest residual stream that DecodeStep takes.
inline constexpr int kDecodeStepWidth = 2048;

// All layers of a step of few rows and its logits in one launch: one block for each multiprocessor, each with its share
// of the rows of every matrix. A block's weights pass through a ring in shared memory, filled by a thread that never
// waits for activations; blocks hand each other activations through cells (device/cells.h).
//
// Results are float32-like: an activation counts as three bfloat16 terms in products with bfloat16 weights, which hold
// all of its 24 bits; attention is float32. Sums have a fixed order. A row's results depend neither on the other rows
// nor on how many there are.
// Source of the order of operations: transformers 5.17, models/gemma4/modeling_gemma4.py, Gemma4TextModel.forward.

// Attention of one kind. Head h reads K/V head h / (heads / kv_heads).
struct DecodeAttention {
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  int32_t window = 0;        // 0: unbounded
  int32_t max_segments = 1;  // a row's context is cut into at most so many parts that are attended to apart
  RopeTableView rope;        // of the step's rows
  KvCacheView cache;         // but for data, which is the layer's
};

// Where a layer's cells lie: kFewRows rows of row_cells each, in which these begin.
struct DecodeCells {
  int64_t layer = 0;
  int32_t row_cells = 0;
  int32_t qkv = 0, attention = 0, o = 0, gated = 0, down = 0, per_layer_gate = 0, per_layer = 0;
  int32_t partials = 0;  // [segments, tiles of heads, kDecodeTileHeads * (head_dim + 2)]; last
};
inline constexpr int kDecodeTileHeads = 8;

// In device memory. Matrices are bfloat16 [out, in], 16-byte aligned; in is a multiple of 8. Norms are float32.
struct DecodeLayer {
  const uint16_t *qkv = nullptr, *o = nullptr, *gate_up = nullptr, *down = nullptr;
  const uint16_t *per_layer_gate = nullptr, *per_layer_projection = nullptr;  // nullptr: no per-layer branch
  const float *input_norm = nullptr, *q_norm = nullptr, *k_norm = nullptr, *post_attention_norm = nullptr,
              *pre_feedforward_norm = nullptr, *post_feedforward_norm = nullptr, *post_per_layer_norm = nullptr;
  std::byte* kv = nullptr;  // its slot of block 0
  DecodeCells cells;
  float scale = 1.0f;
  int32_t qkv_rows = 0, ffn_width = 0;
  int32_t kind = 0;  // of attention
  bool writes_kv = true, v_is_k = false;
};

// What launches tell the next ones; all zero before the first.
struct DecodeStepState {
  uint32_t turn, finished;
  struct {
    int32_t rows, positions[kFewRows];
  } used[2];  // of the set of cells of each turn
};

// All pointers are device memory.
struct DecodeStepArgs {
  int32_t rows = 1;  // of this step, in [1, kFewRows]
  int32_t layers = 0, hidden = 0, per_layer_width = 0, vocab = 0;
  float eps = 0.0f, softcap = 0.0f;  // 0: none
  const DecodeLayer* layer = nullptr;
  DecodeAttention kinds[2];
  bool is_bf16 = true;  // the cache, else float32
  StepRowsView step;
  const float* embedding = nullptr;  // [kFewRows, hidden]
  const float* per_layer = nullptr;  // [kFewRows, layers * per_layer_width]
  const float* final_norm = nullptr;
  const uint16_t* head = nullptr;  // [vocab, hidden]

  float* cells = nullptr;  // two sets of set_cells, all empty (bytes 0xff) before the first launch
  int64_t set_cells = 0;
  DecodeStepState* state = nullptr;

  float* logits = nullptr;       // [kFewRows, vocab], soft-capped
  BestLogit* best = nullptr;     // for BestOfCtas: [MatmulFewCtas(), kFewRows]
  int32_t* bad_place = nullptr;  // set to where the residual stream first is not finite, 1: embedding, 2 + l: layer l
  uint32_t* stuck = nullptr;     // not 0: a wait took too long, see NameOfStuck; results are rubbish
};

// How many parts of its sums a product over `k` leaves that ends in the residual stream (o, down): so many times hidden
// cells.
int DecodeStepParts(int64_t k);

// Segments of the context for a row at `position`.
int DecodeSegments(int position, int window, int max_segments);

// Starts as a dependent launch: everything but weights, norms and `layer` may be written by the launch before. Throws
// kUnsupported where shared memory is too small.
void DecodeStep(gpuStream stream, const DecodeStepArgs& args);

// What *stuck says, for an error.
std::string NameOfStuck(uint32_t stuck);

}  // namespace lapidary::gpu
