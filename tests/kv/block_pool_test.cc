#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"

namespace lapidary {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndThenNone) {
  BlockPool pool(3);
  std::vector<int32_t> blocks = {pool.Allocate(), pool.Allocate(), pool.Allocate()};
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.Allocate(), -1);
  EXPECT_EQ(pool.free_count(), 0);
}

TEST(BlockPool, ReusesTheLastFreedFirst) {
  BlockPool pool(10);
  const int32_t a = pool.Allocate();
  const int32_t b = pool.Allocate();
  pool.Release(a);
  pool.Release(b);
  EXPECT_EQ(pool.Allocate(), b);
  EXPECT_EQ(pool.Allocate(), a);
}

TEST(BlockPool, RefusesANegativeCount) { EXPECT_THROW(BlockPool(-1), Error); }

TEST(BlockPool, GivesUpKeptBlocksOldestFirstAndUsefulOnesLast) {
  BlockPool pool(4);
  std::vector<int32_t> evicted;
  pool.OnEviction([&](int32_t block) { evicted.push_back(block); });
  std::vector<int32_t> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.Allocate());
  for (const int32_t block : blocks) pool.Keep(block);
  pool.MarkUseful(blocks[1]);
  for (const int i : {1, 3, 0, 2}) pool.Release(blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(pool.used_count(), 0);
  EXPECT_EQ(pool.kept_count(), 4);
  EXPECT_EQ(pool.free_count(), 0);
  EXPECT_EQ(pool.available_count(), 4);
  pool.AddReference(blocks[3]);  // used again
  EXPECT_EQ(pool.Allocate(), blocks[0]);
  EXPECT_EQ(pool.Allocate(), blocks[2]);
  EXPECT_EQ(pool.Allocate(), blocks[1]);
  EXPECT_EQ(pool.Allocate(), -1);
  EXPECT_EQ(evicted, (std::vector<int32_t>{blocks[0], blocks[2], blocks[1]}));
}

TEST(BlockPool, ADroppedBlockIsFree) {
  BlockPool pool(2);
  const int32_t idle = pool.Allocate(), used = pool.Allocate();
  pool.Keep(idle);
  pool.Keep(used);
  pool.Release(idle);
  pool.Drop(idle);
  pool.Drop(used);
  EXPECT_EQ(pool.free_count(), 1);
  pool.Release(used);
  EXPECT_EQ(pool.free_count(), 2);
  EXPECT_EQ(pool.kept_count(), 0);
}

TEST(BlockPool, MatchesAPlainModelUnderRandomOperations) {
  constexpr int kCount = 12;
  struct Plain {
    int references = 0;
    bool kept = false, useful = false;
    int released = 0;  // when the last reference went
  };
  BlockPool pool(kCount);
  std::map<int32_t, Plain> blocks;  // those that are not free
  std::vector<int32_t> evicted;
  pool.OnEviction([&](int32_t block) { evicted.push_back(block); });
  const auto given_up_next = [&] {
    int32_t next = -1;
    for (const auto& [id, block] : blocks) {
      if (block.references > 0) continue;
      if (next < 0 || std::pair(block.useful, block.released) < std::pair(blocks[next].useful, blocks[next].released))
        next = id;
    }
    return next;
  };
  std::mt19937 random(1);
  for (int i = 0; i < 40000; ++i) {
    const auto choice = random() % 7;
    if (choice < 2) {
      const int32_t victim = blocks.size() == kCount ? given_up_next() : -1;
      evicted.clear();
      const int32_t block = pool.Allocate();
      ASSERT_EQ(evicted, victim < 0 ? std::vector<int32_t>{} : std::vector<int32_t>{victim});
      blocks.erase(victim);
      if (blocks.size() == kCount) {
        ASSERT_EQ(block, -1);
      } else {
        ASSERT_TRUE(block >= 0 && block < kCount && !blocks.contains(block)) << block;
        blocks[block] = {.references = 1};
      }
    } else if (!blocks.empty()) {
      const auto it = std::next(blocks.begin(), random() % blocks.size());
      auto& [id, block] = *it;
      if (choice == 2) {
        pool.AddReference(id);
        ++block.references;
      } else if (choice == 3 && block.references > 0) {
        pool.Keep(id);
        block.kept = true;
      } else if (choice == 4 && block.kept && random() % 2) {
        pool.Drop(id);
        block.kept = false;
        if (block.references == 0) blocks.erase(it);
      } else if (choice == 5 && random() % 4 == 0) {
        pool.MarkUseful(id);
        if (!block.useful) block.released = i;  // it goes to the end of the other list
        block.useful = true;
      } else if (choice == 6 && block.references > 0) {
        pool.Release(id);
        block.released = i;
        if (--block.references == 0 && !block.kept) blocks.erase(it);
      }
    }
    const auto used =
        std::count_if(blocks.begin(), blocks.end(), [](const auto& b) { return b.second.references > 0; });
    ASSERT_EQ(pool.used_count(), used);
    ASSERT_EQ(pool.kept_count(), static_cast<int32_t>(blocks.size()) - used);
    ASSERT_EQ(pool.free_count(), kCount - static_cast<int32_t>(blocks.size()));
  }
}

}  // namespace
}  // namespace lapidary
