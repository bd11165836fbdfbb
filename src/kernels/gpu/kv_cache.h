#pragma once

#include <cstddef>
#include <cstdint>

namespace lapidary::gpu {

// Positions of one cache block; equals the block size of the cache layout.
inline constexpr int kBlockPositions = 64;

// The rows of a step, in device memory. Rows of one sequence stand together, and their positions rise by 1.
struct StepRowsView {
  const int32_t* count = nullptr;      // [1] rows
  const int32_t* positions = nullptr;  // [max_rows]
  const int32_t* sequences = nullptr;  // [max_rows]
};

// The keys and values of one layer, in device memory. Position p of sequence s is row p % kBlockPositions of block
// blocks[s * max_blocks + p / kBlockPositions - first_block[s]]; block b holds [2 (k, v), kv_heads, kBlockPositions,
// head_dim] at data + b * block_bytes. Positions before first_block[s] * kBlockPositions are gone. All addresses are
// multiples of 16.
struct KvCacheView {
  std::byte* data = nullptr;
  int64_t block_bytes = 0;
  const int32_t* blocks = nullptr;       // [sequences, max_blocks]
  const int32_t* first_block = nullptr;  // [sequences]
  int32_t max_blocks = 0;
  bool is_bf16 = true;  // else float32
};

// cos and sin of the angles by which the rows' pairs (j, j + head_dim / 2), j < pairs, are rotated: [rows, pairs] each.
struct RopeTableView {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int32_t pairs = 0;
};

// The head sizes that the kernels on K/V are built for.
constexpr bool IsHeadDimSupported(int head_dim) {
  return head_dim == 32 || head_dim == 64 || head_dim == 128 || head_dim == 256 || head_dim == 512;
}

}  // namespace lapidary::gpu
