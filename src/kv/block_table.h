#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "model/kv_layout.h"

namespace lapidary {

// Where a sequence's K/V lies in one group: position p is row p % kKvBlockTokens of block
// blocks[p / kKvBlockTokens - first_block].
struct BlockTableView {
  int32_t first_block = 0;  // blocks before it are out of the window and gone
  std::span<const int32_t> blocks;
};

using BlockPools = std::array<BlockPool, kKvGroups>;

// The blocks of one sequence in every group. Releases them when destroyed. Not thread-safe; the pools and the layout
// must outlive it.
class SequenceBlocks {
 public:
  SequenceBlocks(const KvLayout& layout, BlockPools& pools) : layout_(&layout), pools_(&pools) {}
  SequenceBlocks(SequenceBlocks&& other) noexcept;
  SequenceBlocks& operator=(SequenceBlocks&& other) noexcept;
  ~SequenceBlocks();

  // Makes room for positions [0, end). Takes all or nothing: false when some group has too few free blocks.
  bool Reserve(int64_t end);
  // Gives back the blocks that no position >= next can see any more.
  void ReleaseBefore(int64_t next);
  // Forgets positions >= end and gives back whole blocks behind it. `end` is 0 (start over) or not less than the last
  // `next` given to ReleaseBefore.
  void Truncate(int64_t end);
  // Gives everything back.
  void Clear();

  // Valid until the next change.
  BlockTableView View(int group) const { return {first_block_[group], blocks_[group]}; }

 private:
  const KvLayout* layout_;
  BlockPools* pools_;
  std::array<int32_t, kKvGroups> first_block_{};
  std::array<std::vector<int32_t>, kKvGroups> blocks_;
};

// Blocks of one group that a sequence of `length` positions may hold at once when it is run in steps of at most
// `step_tokens` rows.
int64_t BlocksNeeded(const KvGroup& group, int64_t length, int64_t step_tokens);

}  // namespace lapidary
