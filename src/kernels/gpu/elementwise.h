#pragma once

#include <cstdint>

#include "kernels/gpu/kv_cache.h"
#include "kernels/gpu/runtime.h"

// Row-wise operations around the matrix products. Activations are float32, row-major. Widths are multiples of 8, row
// strides multiples of 4, every pointer is aligned to 16 bytes. Every launcher may be captured in a graph; results of a
// row depend on nothing but that row. All kernels are bound by memory: each names what it reads and writes a row.
namespace lapidary::gpu {

// How many rows to run: `max`, or what the device reads from *count when the kernel starts (at most `max`). The grid is
// made for `max`.
struct RowCount {
  int32_t max = 0;
  const int32_t* count = nullptr;
};

// float32 rows: row r begins at values + r * stride. They may lie in several parts that are added up, as products leave
// them whose sums are split: the value is then values + (rest[0] + (rest[1] + ...)), where rest[i] begins at
// rest + i * rest_stride and has the same stride.
struct RowInput {
  const float* values = nullptr;
  int64_t stride = 0;
  const float* rest = nullptr;
  int32_t rest_parts = 0;
  int64_t rest_stride = 0;
};

// Where rows go, each dense [rows, width]; what is null is left out. hi is the value rounded to bf16 (nearest even), lo
// the rest x - hi rounded to bf16, third what is left then: x = hi + lo + third. Products with bf16 weights take them.
struct RowOutput {
  float* values = nullptr;
  uint16_t* hi = nullptr;
  uint16_t* lo = nullptr;     // only beside hi
  uint16_t* third = nullptr;  // only beside lo
};

// The terms as they are read; one term: the others are null.
struct RowTerms {
  const uint16_t* hi = nullptr;
  const uint16_t* lo = nullptr;
  const uint16_t* third = nullptr;
};

// Records in *flag the first place with a value that is not finite: the lowest stage, in it the lowest row. 0: none.
struct FiniteCheck {
  uint64_t* flag = nullptr;
  uint32_t stage = 0;
};

// What *flag says.
struct NonFinite {
  uint32_t stage, row;
};
constexpr NonFinite WhereNonFinite(uint64_t flag) {
  return {~static_cast<uint32_t>(flag >> 32), ~static_cast<uint32_t>(flag)};
}

// Largest width of a row that the norms take.
inline constexpr int kMaxNormWidth = 16384;
// Largest head that head norms take.
inline constexpr int kMaxHeadDim = 512;

// out = x * (mean(x^2) + eps)^-0.5 * weight. weight [width] float32, null: 1.
// Reads 4 width (12 with three terms), writes 4 width and/or 2 width for each bf16 term.
void RmsNorm(gpuStream stream, RowCount rows, int width, RowInput x, const float* weight, float eps, RowOutput out);

// What AddRmsNorm gives on beside `hidden`.
enum class NextRow : uint8_t {
  kNone,
  kHidden,  // the new hidden row
  kNormed,  // its RmsNorm with next_weight
};

struct AddRmsNormTask {
  RowInput branch = {};
  const float* weight = nullptr;  // [width]; null: 1
  float eps = 0;
  float scale = 1;          // of the new hidden row
  float* hidden = nullptr;  // [rows, width]
  NextRow next = NextRow::kNone;
  const float* next_weight = nullptr;  // [width]; null: 1
  RowOutput out = {};
  FiniteCheck check = {};  // of the new hidden row
};

// hidden = (hidden + RmsNorm(branch; weight)) * scale, then out as task.next says.
// Reads 8 width (16 with three terms), writes 4 width and what out takes.
void AddRmsNorm(gpuStream stream, RowCount rows, int width, const AddRmsNormTask& task);

// cos and sin [rows, pairs] of float(positions[r]) * inverse_frequencies[j], a float32 product.
void RopeTable(gpuStream stream, RowCount rows, const int32_t* positions, const float* inverse_frequencies, int pairs,
               float* cos, float* sin);

struct HeadShape {
  int heads = 0;
  int head_dim = 0;  // a multiple of 16, at most kMaxHeadDim
};

// RmsNorm of each head with weight [head_dim] (null: 1), then the pairs (j, j + head_dim / 2), j < rope.pairs, rotated.
// x row r holds heads * head_dim values; out is [rows, heads * head_dim] and may be x.values. A warp a head.
// Reads 4 heads * head_dim (12 with three terms), writes as much as out takes.
void NormRotateHeads(gpuStream stream, RowCount rows, HeadShape shape, RowInput x, const float* weight, float eps,
                     RopeTableView rope, RowOutput out);

// out[r] = table[ids[r]] * scale. table [vocabulary, width] bf16, in memory that the device can read.
// Reads 2 width, writes what out takes.
void EmbedRows(gpuStream stream, RowCount rows, int width, const int32_t* ids, const uint16_t* table, float scale,
               RowOutput out);

// out = gelu_tanh(gate) * up. Reads 8 width (24 with three terms each), writes what out takes.
void GeluMul(gpuStream stream, RowCount rows, int width, RowInput gate, RowInput up, RowOutput out);

struct PerLayerInputsTask {
  RowInput context = {};          // [rows, layers * width]: the projected embedding
  float context_scale = 1;        // hidden_size^-0.5
  const float* weight = nullptr;  // [width] of the norm
  float eps = 0;
  const int32_t* ids = nullptr;     // [rows]
  const uint16_t* table = nullptr;  // row 0 of the token table, first layer wanted; device or pinned host memory
  int64_t table_stride = 0;         // values from a token to the next: all layers * width
  float token_scale = 1;            // width^0.5
  int layers = 0;
  int width = 0;  // of one layer: a multiple of 8
};

// out[r][l] = (RmsNorm(context[r][l] * context_scale; weight) + table[ids[r]][l] * token_scale) * 2^-0.5, dense
// [rows, layers * width] float32. A warp a row and layer. Reads 6 width (14 with three terms), writes 4 width for each.
void PerLayerInputs(gpuStream stream, RowCount rows, const PerLayerInputsTask& task, float* out);

// out = x: adds the terms of a product, splits into bf16 terms. Reads 4 width (12 with three terms), writes what out
// takes.
void ConvertRows(gpuStream stream, RowCount rows, int width, RowInput x, RowOutput out);

// out = cap * tanh(x / cap), or x where cap is 0, dense [rows, width]; out may be x.values where that is dense. Reads 4
// width (8 with two terms), writes 4 width.
void Softcap(gpuStream stream, RowCount rows, int width, RowInput x, float cap, float* out);

// out[r] = x[kept[r]], dense [rows, width]; out overlaps no row of x. Reads and writes 4 width.
void GatherRows(gpuStream stream, RowCount rows, int width, RowInput x, const int32_t* kept, float* out);

// See FiniteCheck. Reads 4 width.
void CheckFinite(gpuStream stream, RowCount rows, int width, const float* x, FiniteCheck check);

}  // namespace lapidary::gpu
