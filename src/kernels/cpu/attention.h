#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"

namespace lapidary::cpu {

// Positions of one cache block; equals the block size of the cache layout.
inline constexpr int64_t kBlockPositions = 64;
// Attention adds up in segments of this many absolute positions, each on its own, then merges them in order.
inline constexpr int64_t kSegmentPositions = 256;

// The keys and values of one layer of one sequence. Position p is row p % kBlockPositions of block
// blocks[p / kBlockPositions - first_block]; a block holds [2 (k, v), kv_heads, kBlockPositions, head_dim] at
// data + block * block_bytes. Positions before first_block * kBlockPositions are gone.
struct KvBlocks {
  std::byte* data = nullptr;
  int64_t block_bytes = 0;
  const int32_t* blocks = nullptr;
  int32_t first_block = 0;
  DType dtype = DType::kF32;  // kF32 or kBF16
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;  // divides heads; query head h reads K/V head h / (heads / kv_heads)
  int head_dim = 0;
  int64_t window = 0;  // 0: unbounded; else position i sees max(0, i - window + 1) .. i
};

struct AttentionRow {
  int64_t position = 0;
  const KvBlocks* kv = nullptr;
};

// Memory of Attention; grows as needed and is kept. One per concurrent caller.
struct AttentionScratch {
  std::vector<std::vector<float>> threads;  // [threads] private working memory
  std::vector<float> partials;              // segments that were computed apart
};

// Writes k and v [kv_heads, head_dim] of one position into the cache, rounded to nearest even where it is bfloat16.
void AppendKv(const AttentionShape& shape, const KvBlocks& kv, int64_t position, const float* k, const float* v);

// out[r][h] = softmax(q[r][h] . k) v over the positions that row r sees, scale 1. q and out are [rows, heads,
// head_dim]. Rows of one sequence stand together with rising positions. All query heads of a K/V head are taken
// together; memory does not grow with the context except for one partial result in kSegmentPositions positions while
// there are few rows. A row's result does not depend on the other rows or on the number of threads.
void Attention(ThreadPool& pool, AttentionScratch& scratch, const AttentionShape& shape, const float* q,
               std::span<const AttentionRow> rows, float* out);

}  // namespace lapidary::cpu
