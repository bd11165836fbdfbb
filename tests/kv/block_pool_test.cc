#include "kv/block_pool.h"

#include <gtest/gtest.h>

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

TEST(BlockPool, MatchesAPlainModelUnderRandomOperations) {
  constexpr int kCount = 12;
  BlockPool pool(kCount);
  std::map<int32_t, int> references;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto choice = random() % 3;
    if (choice == 0) {
      const int32_t block = pool.Allocate();
      if (references.size() == kCount) {
        ASSERT_EQ(block, -1);
      } else {
        ASSERT_TRUE(block >= 0 && block < kCount && !references.contains(block)) << block;
        references[block] = 1;
      }
    } else if (!references.empty()) {
      auto it = std::next(references.begin(), random() % references.size());
      if (choice == 1) {
        pool.AddReference(it->first);
        ++it->second;
      } else {
        pool.Release(it->first);
        if (--it->second == 0) references.erase(it);
      }
    }
    ASSERT_EQ(pool.free_count(), kCount - static_cast<int32_t>(references.size()));
  }
}

}  // namespace
}  // namespace lapidary
