#include "tokenizer/merge_table.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

TEST(MergeTableTest, FindsWhatWasAdded) {
  constexpr int32_t kSide = 60;
  MergeTable table(kSide * kSide);
  for (int32_t left = 0; left < kSide; ++left) {
    for (int32_t right = 0; right < kSide; ++right) {
      table.Add(left, right, {static_cast<uint32_t>(left * kSide + right), left + right});
    }
  }
  for (int32_t left = 0; left < kSide; ++left) {
    for (int32_t right = 0; right < kSide; ++right) {
      EXPECT_EQ(table.Find(left, right).rank, static_cast<uint32_t>(left * kSide + right));
      EXPECT_EQ(table.Find(left, right).result, left + right);
    }
  }
  EXPECT_EQ(table.Find(kSide, 0).rank, Merge::kNone);
}

TEST(MergeTableTest, TheLaterOfTwoCounts) {
  MergeTable table(2);
  table.Add(1, 2, {0, 5});
  table.Add(1, 2, {9, 5});
  EXPECT_EQ(table.Find(1, 2).rank, 9U);
  EXPECT_EQ(table.Find(2, 1).rank, Merge::kNone);
}

TEST(MergeTableTest, Empty) { EXPECT_EQ(MergeTable(0).Find(0, 0).rank, Merge::kNone); }

}  // namespace
}  // namespace lapidary
