#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/kv_cache.h"
#include "kernels/gpu/runtime.h"

// Attention of many rows on tensor cores: softmax(q k^T) v with scale 1, causal and, with a window, over the last
// `window` positions. A block takes a tile: some rows of one sequence, all query heads of one K/V head, so that keys
// and values are read once for all of them; it walks over the positions that its rows see, in tiles of 16 to 64, with
// an online softmax. No memory grows with the context. Tiles of positions begin at multiples of their size, and one
// that a row does not see changes nothing, so a row's result does not depend on the other rows of its tile.
namespace lapidary::gpu {

// What is the same for all launches of one layer type.
struct PrefillShape {
  int heads = 0;
  int kv_heads = 0;           // divides heads
  int head_dim = 0;           // a multiple of 16, at most 512; 64, 256 and 512 are fastest
  int64_t window = 0;         // 0: unbounded; else position i sees max(0, i - window + 1) .. i
  bool is_bf16_cache = true;  // else float32
  // bf16 terms of q and of the softmax weights, and of the keys and values of a float32 cache. 3: all 24 bits, results
  // are float32-like. 1: they are rounded to bf16 (a float32 cache on its way into shared memory), results are as exact
  // as bf16 activations.
  int terms = 3;
};

// How a shape is cut on a device.
struct PrefillTiling {
  int rows = 0;  // of a tile, at most
  bool is_small = false;
  size_t shared_bytes = 0;
};

// Throws Error kUnsupported for a head_dim, a number of heads or a size of shared memory that no kernel is built for.
PrefillTiling ChoosePrefillTiling(const PrefillShape& shape, int64_t shared_bytes_per_block);

// Rows [first_row, first_row + rows) of a step, of one sequence with rising positions. rows 0: nothing.
struct QueryTile {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t sequence = 0;
};

// Cuts a step's rows, whose sequences stand together, into tiles of at most `tile_rows`.
std::vector<QueryTile> CutIntoTiles(std::span<const int32_t> sequences, int tile_rows);

struct AttentionPrefillArgs {
  PrefillShape shape = {};
  PrefillTiling tiling = {};
  const QueryTile* tiles = nullptr;    // [tile_count] in device memory; the last are started first
  int tile_count = 0;                  // 0: no launch
  const int32_t* positions = nullptr;  // [rows] in device memory
  RowTerms q = {};                     // [rows, heads * head_dim] normed, rotated, split into shape.terms terms
  KvCacheView cache = {};              // holds the rows' own keys and values, too
  RowOutput out = {};                  // [rows, heads * head_dim]
};

// Reads q once and, for each tile, the keys and values that it sees. 4 * head_dim operations for each row, head and
// position seen, three times that with three terms, six times with three terms of a float32 cache, too.
void AttentionPrefill(gpuStream stream, const AttentionPrefillArgs& args);

}  // namespace lapidary::gpu
