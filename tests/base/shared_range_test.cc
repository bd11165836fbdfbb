#include "base/shared_range.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/thread_pool.h"

namespace lapidary {
namespace {

using Taken = std::pair<uint32_t, uint32_t>;

TEST(SharedRange, GivesFrontAndBackUntilNothingIsLeft) {
  SharedRange range;
  range.Reset(10);
  Taken taken;
  ASSERT_TRUE(range.Take(3, true, taken));
  EXPECT_EQ(taken, Taken(0, 3));
  ASSERT_TRUE(range.Take(4, false, taken));
  EXPECT_EQ(taken, Taken(6, 10));
  ASSERT_TRUE(range.Take(2, true, taken));
  EXPECT_EQ(taken, Taken(3, 5));
  ASSERT_TRUE(range.Take(100, false, taken));
  EXPECT_EQ(taken, Taken(5, 6));
  EXPECT_FALSE(range.Take(1, true, taken));
  EXPECT_FALSE(range.Take(1, false, taken));
}

TEST(SharedRange, GivesLargePartsFirst) {
  SharedRange range;
  range.Reset(800);
  Taken taken;
  ASSERT_TRUE(range.Take(3, true, taken));
  EXPECT_EQ(taken, Taken(0, 100));
  ASSERT_TRUE(range.Take(3, false, taken));
  EXPECT_EQ(taken, Taken(713, 800));
}

TEST(SharedRange, HoldsNothingUntilReset) {
  SharedRange range;
  Taken taken;
  EXPECT_FALSE(range.Take(1, true, taken));
  range.Reset(0);
  EXPECT_FALSE(range.Take(1, false, taken));
  range.Reset(~uint32_t{0});
  ASSERT_TRUE(range.Take(1, false, taken));
  EXPECT_EQ(taken, Taken(~uint32_t{0} - (1u << 29) + 1, ~uint32_t{0}));
}

TEST(SharedRange, ThreadsTakeEachNumberOnce) {
  constexpr uint32_t kCount = 20000;
  constexpr int kThreads = 4;
  SharedRange range;
  ThreadPool pool(kThreads);
  for (int round = 0; round < 10; ++round) {
    range.Reset(kCount);
    std::vector<int> times(kCount, 0);  // each element is written by the one thread that took it
    pool.Run([&](int thread) {
      for (Taken taken; range.Take(static_cast<uint32_t>(1 + thread), thread % 2 == 0, taken);) {
        for (uint32_t i = taken.first; i < taken.second; ++i) ++times[i];
      }
    });
    EXPECT_EQ(times, std::vector<int>(kCount, 1)) << round;
  }
}

}  // namespace
}  // namespace lapidary
