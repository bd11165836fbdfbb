#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/experts.h"

// What experts.cu and expert_products.cu share.
namespace lapidary::gpu {

// Some rows of one expert: slots [first_slot, first_slot + rows).
struct ExpertTile {
  int32_t expert, first_slot, rows;
};

// Choice c is the (c % top_k)-th of row c / top_k; slots are the choices sorted by expert, in an expert by choice.
struct ExpertWorkspace::Parts {
  int32_t* choice_expert;     // [choices]
  float* choice_weight;       // [choices]
  int32_t* slot_of_choice;    // [choices]; first the number of choices of the same expert before it in its chunk
  int32_t* choice_of_slot;    // [choices]
  int32_t* chunk_counts;      // [chunks, experts] choices of each expert; then those in the chunks before
  int32_t* first_slot;        // [experts]
  int32_t* tile_count;        // [1]
  ExpertTile* tiles;          // [tile_count]
  float* results;             // [choices, hidden] by slot
  uint16_t *hi, *lo, *third;  // [choices, width] by slot: the activations between the two products
};

inline constexpr int kChunkChoices = 256;

// Rows of a tile, by how many choices an expert gets when they are spread evenly: few, so that each weight is read once
// and nothing is multiplied in vain; many, so that a weight that was read is used often.
inline constexpr int kFewTileRows = 16, kSomeTileRows = 64, kManyTileRows = 128;
constexpr int ExpertTileRows(const ExpertShape& shape, int32_t max_rows) {
  const int64_t each = int64_t{max_rows} * shape.top_k / shape.experts;
  return each < 32 ? kFewTileRows : each < 256 ? kSomeTileRows : kManyTileRows;
}

// Tiles at most.
constexpr int64_t ExpertTileCount(const ExpertShape& shape, int32_t max_rows) {
  const int64_t choices = int64_t{max_rows} * shape.top_k;
  return choices / ExpertTileRows(shape, max_rows) + (choices < shape.experts ? choices : shape.experts);
}

// What RunExperts launches. The first product reads x and leaves gelu_tanh(gate) * up in parts.hi and, with three
// terms, parts.lo and parts.third; the second leaves its results in parts.results.
void ExpertProducts(gpuStream stream, int32_t max_rows, const RowTerms& x, const ExpertWeights& weights,
                    const ExpertWorkspace& workspace);

}  // namespace lapidary::gpu
