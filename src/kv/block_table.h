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

  // Begins with blocks of others at [0, end): `blocks[g]` hold [first_block[g], ...) of group g, one reference to each
  // of them passes to the sequence, which holds nothing yet.
  void Adopt(const std::array<int32_t, kKvGroups>& first_block, std::array<std::vector<int32_t>, kKvGroups> blocks);
  // Makes room for positions [0, end). Takes all or nothing: false when some group's pool has too few.
  bool Reserve(int64_t end);
  // Gives back the blocks that no position >= next can see any more.
  void ReleaseBefore(int64_t next);
  // Forgets positions >= end and gives back whole blocks behind it. `end` is 0 (start over) or not less than the last
  // `next` given to ReleaseBefore.
  void Truncate(int64_t end);
  // Gives everything back.
  void Clear();

  // Takes `block`, which holds the same K/V, in place of the sequence's own at `index` (position / kKvBlockTokens).
  void Replace(int group, int64_t index, int32_t block);
  // Marks what position `next` sees of groups with a window as worth keeping, as far as it is here.
  void MarkWindow(int64_t next);

  // The block of `index` (position / kKvBlockTokens), or -1 where the sequence holds none.
  int32_t BlockAt(int group, int64_t index) const;
  int64_t held(int group) const { return static_cast<int64_t>(blocks_[static_cast<size_t>(group)].size()); }
  // Valid until the next change.
  BlockTableView View(int group) const { return {first_block_[group], blocks_[group]}; }

 private:
  const KvLayout* layout_;
  BlockPools* pools_;
  std::array<int32_t, kKvGroups> first_block_{};
  std::array<std::vector<int32_t>, kKvGroups> blocks_;
};

// The first block that position `next` sees in a group.
inline int64_t FirstSeenBlock(const KvGroup& group, int64_t next) {
  return group.window == 0 || next < group.window ? 0 : (next - group.window + 1) / kKvBlockTokens;
}

// Blocks of one group that a sequence of `length` positions may hold at once when it is run in steps of at most
// `step_tokens` rows.
int64_t BlocksNeeded(const KvGroup& group, int64_t length, int64_t step_tokens);

}  // namespace lapidary
