#include "kv/block_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace lapidary {
namespace {

constexpr int kSliding = 0, kFull = 1;

KvLayout Layout(int64_t window) {
  KvLayout layout;
  layout.groups[kSliding] = {.layers = 2, .kv_heads = 1, .head_dim = 4, .window = window};
  layout.groups[kFull] = {.layers = 1, .kv_heads = 1, .head_dim = 8, .window = 0};
  return layout;
}

TEST(SequenceBlocks, ReserveTakesAllOrNothing) {
  const KvLayout layout = Layout(100);
  BlockPools pools = {BlockPool(10), BlockPool(2)};
  SequenceBlocks blocks(layout, pools);
  EXPECT_FALSE(blocks.Reserve(129));
  EXPECT_EQ(pools[kSliding].free_count(), 10);
  EXPECT_EQ(pools[kFull].free_count(), 2);
  EXPECT_TRUE(blocks.Reserve(128));
  EXPECT_EQ(blocks.View(kSliding).blocks.size(), 2u);
  EXPECT_EQ(blocks.View(kFull).blocks.size(), 2u);
  EXPECT_TRUE(blocks.Reserve(5));
  EXPECT_EQ(blocks.View(kFull).blocks.size(), 2u);
}

// Position `next` sees back to next - window + 1: the block that holds it stays, the one before goes.
TEST(SequenceBlocks, ReleaseBeforeKeepsExactlyTheWindow) {
  const KvLayout layout = Layout(100);
  BlockPools pools = {BlockPool(10), BlockPool(10)};
  SequenceBlocks blocks(layout, pools);
  ASSERT_TRUE(blocks.Reserve(256));
  blocks.ReleaseBefore(64 + 100 - 2);  // sees 63
  EXPECT_EQ(blocks.View(kSliding).first_block, 0);
  blocks.ReleaseBefore(64 + 100 - 1);  // sees 64
  EXPECT_EQ(blocks.View(kSliding).first_block, 1);
  EXPECT_EQ(blocks.View(kSliding).blocks.size(), 3u);
  EXPECT_EQ(blocks.View(kFull).first_block, 0);
  EXPECT_EQ(blocks.View(kFull).blocks.size(), 4u);
}

TEST(SequenceBlocks, MoveHandsOverAndDestructionGivesBack) {
  const KvLayout layout = Layout(100);
  BlockPools pools = {BlockPool(10), BlockPool(10)};
  {
    SequenceBlocks first(layout, pools);
    ASSERT_TRUE(first.Reserve(200));
    SequenceBlocks second(std::move(first));
    EXPECT_EQ(second.View(kFull).blocks.size(), 4u);
    SequenceBlocks third(layout, pools);
    ASSERT_TRUE(third.Reserve(10));
    third = std::move(second);
    EXPECT_EQ(pools[kFull].free_count(), 6);
  }
  EXPECT_EQ(pools[kSliding].free_count(), 10);
  EXPECT_EQ(pools[kFull].free_count(), 10);
}

TEST(SequenceBlocks, GroupsWithoutLayersHoldNothing) {
  KvLayout layout = Layout(100);
  layout.groups[kFull].layers = 0;
  BlockPools pools = {BlockPool(10), BlockPool(0)};
  SequenceBlocks blocks(layout, pools);
  EXPECT_TRUE(blocks.Reserve(300));
  EXPECT_EQ(BlocksNeeded(layout.groups[kFull], 300, 10), 0);
}

// Several sequences walk forward in random steps, roll back as speculation does and end, in pools of just the size
// that BlocksNeeded promises. Every position that can be seen keeps its block, and no two positions share one.
TEST(SequenceBlocks, MatchesAPlainModelUnderRandomOperations) {
  constexpr int kSequences = 4;
  constexpr int64_t kLength = 1500, kStep = 70;
  for (const int64_t window : {1, 63, 64, 65, 200}) {
    const KvLayout layout = Layout(window);
    const auto size = [&](int g) {
      return BlockPool(
          static_cast<int32_t>(kSequences * BlocksNeeded(layout.groups[static_cast<size_t>(g)], kLength, kStep)));
    };
    BlockPools pools = {size(kSliding), size(kFull)};
    std::vector<SequenceBlocks> sequences;
    for (int i = 0; i < kSequences; ++i) sequences.emplace_back(layout, pools);
    std::vector<int64_t> next(kSequences, 0);
    // [sequence][group]: block index -> block, as first handed out
    std::map<int64_t, int32_t> placed[kSequences][kKvGroups];
    std::mt19937 random(static_cast<uint32_t>(window));
    for (int i = 0; i < 4000; ++i) {
      const size_t s = random() % kSequences;
      const int64_t rows = std::min<int64_t>(1 + random() % kStep, kLength - next[s]);
      if (rows == 0 || random() % 200 == 0) {
        sequences[s].Clear();
        next[s] = 0;
        for (auto& group : placed[s]) group.clear();
        continue;
      }
      ASSERT_TRUE(sequences[s].Reserve(next[s] + rows));
      for (int g = 0; g < kKvGroups; ++g) {
        const BlockTableView view = sequences[s].View(g);
        const int64_t first_seen =
            window > 0 && g == kSliding ? std::max<int64_t>(0, next[s] - window + 1) / kKvBlockTokens : 0;
        ASSERT_LE(view.first_block, first_seen);
        ASSERT_GE((view.first_block + static_cast<int64_t>(view.blocks.size())) * kKvBlockTokens, next[s] + rows);
        for (size_t b = 0; b < view.blocks.size(); ++b) {
          const auto [it, fresh] = placed[s][g].try_emplace(view.first_block + static_cast<int64_t>(b), view.blocks[b]);
          ASSERT_EQ(it->second, view.blocks[b]);
        }
      }
      const int64_t kept = next[s] + 1 + random() % rows;  // speculation: at least one row stays
      sequences[s].Truncate(kept);
      sequences[s].ReleaseBefore(kept);
      next[s] = kept;
      for (int g = 0; g < kKvGroups; ++g) {
        placed[s][g].erase(placed[s][g].upper_bound((kept - 1) / kKvBlockTokens), placed[s][g].end());
        std::set<int32_t> used;
        size_t held = 0;
        for (auto& sequence : sequences) {
          const BlockTableView view = sequence.View(g);
          used.insert(view.blocks.begin(), view.blocks.end());
          held += view.blocks.size();
        }
        ASSERT_EQ(used.size(), held);
        ASSERT_EQ(pools[static_cast<size_t>(g)].count() - pools[static_cast<size_t>(g)].free_count(),
                  static_cast<int32_t>(held));
      }
    }
  }
}

TEST(BlocksNeeded, CoversTheWorstAlignmentOfAWindowAndAStep) {
  const KvGroup sliding{.layers = 1, .kv_heads = 1, .head_dim = 4, .window = 512};
  EXPECT_EQ(BlocksNeeded(sliding, 64, 256), 1);
  EXPECT_EQ(BlocksNeeded(sliding, 100000, 1), 1 + 8);     // 512 positions that begin in a block's last row
  EXPECT_EQ(BlocksNeeded(sliding, 100000, 256), 1 + 12);  // 767 positions
  const KvGroup full{.layers = 1, .kv_heads = 1, .head_dim = 4, .window = 0};
  EXPECT_EQ(BlocksNeeded(full, 65, 256), 2);
  EXPECT_EQ(BlocksNeeded(full, 0, 256), 0);
}

}  // namespace
}  // namespace lapidary
