#include "kv/block_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace lapidary {
namespace {

int64_t BlocksFor(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

}  // namespace

SequenceBlocks::SequenceBlocks(SequenceBlocks&& other) noexcept
    : layout_(other.layout_),
      pools_(other.pools_),
      first_block_(std::exchange(other.first_block_, {})),
      blocks_(std::exchange(other.blocks_, {})) {}

SequenceBlocks& SequenceBlocks::operator=(SequenceBlocks&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  layout_ = other.layout_;
  pools_ = other.pools_;
  first_block_ = std::exchange(other.first_block_, {});
  blocks_ = std::exchange(other.blocks_, {});
  return *this;
}

SequenceBlocks::~SequenceBlocks() { Clear(); }

void SequenceBlocks::Adopt(const std::array<int32_t, kKvGroups>& first_block,
                           std::array<std::vector<int32_t>, kKvGroups> blocks) {
  assert(blocks_[0].empty() && blocks_[1].empty());
  first_block_ = first_block;
  blocks_ = std::move(blocks);
}

bool SequenceBlocks::Reserve(int64_t end) {
  std::array<int64_t, kKvGroups> missing{};
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (layout_->groups[g].layers == 0) continue;
    const int64_t held_end = first_block_[g] + static_cast<int64_t>(blocks_[g].size());
    missing[g] = std::max<int64_t>(0, BlocksFor(end) - held_end);
    if (missing[g] > (*pools_)[g].available_count()) return false;
  }
  for (size_t g = 0; g < kKvGroups; ++g) {
    for (; missing[g] > 0; --missing[g]) blocks_[g].push_back((*pools_)[g].Allocate());
  }
  return true;
}

void SequenceBlocks::ReleaseBefore(int64_t next) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    const int64_t first_needed = FirstSeenBlock(layout_->groups[g], next);
    const int64_t gone = std::min<int64_t>(first_needed - first_block_[g], static_cast<int64_t>(blocks_[g].size()));
    if (gone <= 0) continue;
    for (int64_t i = 0; i < gone; ++i) (*pools_)[g].Release(blocks_[g][static_cast<size_t>(i)]);
    blocks_[g].erase(blocks_[g].begin(), blocks_[g].begin() + gone);
    first_block_[g] += static_cast<int32_t>(gone);
  }
}

void SequenceBlocks::Truncate(int64_t end) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    const int64_t kept = std::max<int64_t>(0, BlocksFor(end) - first_block_[g]);
    while (static_cast<int64_t>(blocks_[g].size()) > kept) {
      (*pools_)[g].Release(blocks_[g].back());
      blocks_[g].pop_back();
    }
    if (end == 0) first_block_[g] = 0;
  }
}

void SequenceBlocks::Clear() { Truncate(0); }

void SequenceBlocks::Replace(int group, int64_t index, int32_t block) {
  const auto g = static_cast<size_t>(group);
  int32_t& place = blocks_[g][static_cast<size_t>(index - first_block_[g])];
  if (place == block) return;
  (*pools_)[g].AddReference(block);
  (*pools_)[g].Release(place);
  place = block;
}

void SequenceBlocks::MarkWindow(int64_t next) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    const KvGroup& group = layout_->groups[g];
    if (group.window == 0) continue;
    for (int64_t index = FirstSeenBlock(group, next); index < BlocksFor(next); ++index) {
      const int32_t block = BlockAt(static_cast<int>(g), index);
      if (block >= 0) (*pools_)[g].MarkUseful(block);
    }
  }
}

int32_t SequenceBlocks::BlockAt(int group, int64_t index) const {
  const auto g = static_cast<size_t>(group);
  const int64_t at = index - first_block_[g];
  return at < 0 || at >= static_cast<int64_t>(blocks_[g].size()) ? -1 : blocks_[g][static_cast<size_t>(at)];
}

int64_t BlocksNeeded(const KvGroup& group, int64_t length, int64_t step_tokens) {
  if (group.layers == 0 || length <= 0) return 0;
  const int64_t whole = BlocksFor(length);
  if (group.window == 0) return whole;
  // A step of n rows keeps window - 1 positions before its first row. An interval of m positions that begins on the
  // last row of a block touches 1 + ceil((m - 1) / kKvBlockTokens) blocks.
  const int64_t span = group.window - 1 + std::max<int64_t>(1, step_tokens);
  return std::min(whole, 1 + BlocksFor(span - 1));
}

}  // namespace lapidary
