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
  int32_t group = 0, tiles = 0;  // query heads of a K/V head, and tiles of kDecodeTileHeads of them
  int32_t window = 0;            // 0: unbounded
  int32_t max_segments = 1;      // a row's context is cut into at most so many parts that are attended to apart
  RopeTableView rope;            // of the step's rows
  KvCacheView cache;             // but for data, which is the layer's
};

// The products of a step in their order: those of a layer, the head after all layers.
enum class DecodeMatrix : uint8_t { kQkv, kO, kGateUp, kDown, kPerLayerGate, kPerLayerProjection, kHead };
inline constexpr int kDecodeLayerMatrices = 6;

// Where a layer's cells lie: kFewRows rows of row_cells each, in which these begin.
struct DecodeCells {
  int64_t layer = 0;
  int32_t row_cells = 0;
  int32_t attention = 0;
  int32_t outputs[kDecodeLayerMatrices] = {};  // of each DecodeMatrix, the parts one after another
  int32_t sums[kDecodeLayerMatrices] = {};     // of the parts, where there may be several
  int32_t partials = 0;                        // [segments, tiles of heads, kDecodeTileHeads * (head_dim + 2)]; last
};
inline constexpr int kDecodeTileHeads = 8;

// In device memory. Matrices are bfloat16 [out, in], 16-byte aligned; in is a multiple of 8. Norms are float32, 16-byte
// aligned. Arrays go by DecodeMatrix.
struct alignas(16) DecodeLayer {
  const uint16_t* weights[kDecodeLayerMatrices] = {};  // nullptr: no per-layer branch
  // Of the norms that the stream goes through before q, k, v and before gate and up; and the branches after o, down and
  // the per-layer projection.
  const float* norms[kDecodeLayerMatrices] = {};
  const float *q_norm = nullptr, *k_norm = nullptr;
  std::byte* kv = nullptr;  // its slot of block 0
  DecodeCells cells;
  float scale = 1.0f;
  int32_t kind = 0;   // of attention
  int32_t shape = 0;  // of its matrices
  bool writes_kv = true, v_is_k = false;
};

// Layers of one shape have matrices of the same sizes: an attention of one kind, with or without k and v, and an MLP.
struct DecodeShape {
  int32_t kind = 0, qkv_rows = 0, ffn_width = 0;
  bool operator==(const DecodeShape&) const = default;
};
inline constexpr int kDecodeMostShapes = 8;

// What launches tell the next ones; all zero before the first.
struct DecodeStepState {
  uint32_t turn, finished;
  struct {
    int32_t rows, positions[kFewRows];
  } used[2];  // of the set of cells of each turn
};

// The moments of a block in a layer. Of each product: its turn has come, its input is there, its outputs are published.
// Then of attention: the query is there, the segments are attended to, all is merged.
inline constexpr int kDecodeMarksOfProduct = 3;
inline constexpr int kDecodeAttentionMarks = 7 * kDecodeMarksOfProduct, kDecodeMarks = kDecodeAttentionMarks + 3;

// All pointers are device memory.
struct DecodeStepArgs {
  int32_t rows = 1;  // of this step, in [1, kFewRows]
  int32_t layers = 0, hidden = 0, per_layer_width = 0, vocab = 0;
  float eps = 0.0f, softcap = 0.0f;  // 0: none
  const DecodeLayer* layer = nullptr;
  int32_t shapes = 0;
  DecodeShape shape[kDecodeMostShapes];
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

  int64_t* marks = nullptr;      // nullptr, or for times: [blocks, layers + 1, kDecodeMarks], nanoseconds
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

// Whether a block with so much shared memory is enough for steps of 1 to kFewRows rows.
bool DecodeStepFits(int64_t shared_bytes);

// Starts as a dependent launch: everything but weights, norms and `layer` may be written by the launch before. Throws
// kUnsupported where shared memory is too small (DecodeStepFits).
void DecodeStep(gpuStream stream, const DecodeStepArgs& args);

// What *stuck says, for an error.
std::string NameOfStuck(uint32_t stuck);

}  // namespace lapidary::gpu
