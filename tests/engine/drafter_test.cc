#include "engine/drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Propose(NgramDrafter& drafter, int64_t limit = 7) {
  const auto draft = drafter.Propose(limit);
  return {draft.begin(), draft.end()};
}

void Append(NgramDrafter& drafter, std::vector<int32_t> tokens) { drafter.Append(tokens); }

TEST(NgramDrafter, FollowsTheLatestEarlierOccurrence) {
  NgramDrafter drafter;
  Append(drafter, {1, 2, 3, 10, 11, 12, 13, 1, 2, 3, 20, 21, 22, 23, 1, 2, 3});
  EXPECT_THAT(Propose(drafter), ElementsAre(20, 21, 22, 23));
}

TEST(NgramDrafter, PrefersALongerMatchOverALaterShorterOne) {
  NgramDrafter drafter;
  Append(drafter, {1, 2, 3, 10, 11, 9, 2, 3, 20, 21, 1, 2, 3});
  EXPECT_THAT(Propose(drafter, 2), ElementsAre(10, 11));
}

TEST(NgramDrafter, ProposesNothingWithoutAnEarlierOccurrence) {
  NgramDrafter drafter;
  EXPECT_THAT(Propose(drafter), IsEmpty());
  Append(drafter, {1});
  EXPECT_THAT(Propose(drafter), IsEmpty());
  Append(drafter, {2, 3, 4, 5});
  EXPECT_THAT(Propose(drafter), IsEmpty());
}

TEST(NgramDrafter, GoesOnWithAShortPeriod) {
  NgramDrafter drafter;
  Append(drafter, {5, 6, 5, 6, 5});
  EXPECT_THAT(Propose(drafter, 4), ElementsAre(6, 5, 6, 5));
  NgramDrafter same;
  Append(same, {7, 7, 7});
  EXPECT_THAT(Propose(same, 3), ElementsAre(7, 7, 7));
}

TEST(NgramDrafter, HonoursTheLimit) {
  NgramDrafter drafter;
  Append(drafter, {7, 7, 7, 7, 7});
  EXPECT_THAT(Propose(drafter, 0), IsEmpty());
  EXPECT_THAT(Propose(drafter, -3), IsEmpty());
  EXPECT_EQ(Propose(drafter, 2).size(), 2u);
  for (int i = 0; i < 5; ++i) drafter.Report(4, 4);
  EXPECT_EQ(Propose(drafter, 100).size(), static_cast<size_t>(NgramDrafter::kMaxDraft));
}

TEST(NgramDrafter, LengthFollowsAcceptance) {
  NgramDrafter drafter;
  Append(drafter, std::vector<int32_t>(20, 7));
  const size_t first = Propose(drafter).size();
  drafter.Report(static_cast<int64_t>(first), static_cast<int64_t>(first));
  EXPECT_GT(Propose(drafter).size(), first);
  drafter.Report(7, 1);
  EXPECT_EQ(Propose(drafter).size(), 2u);
}

// Drafts that keep failing pause, but never for ever.
TEST(NgramDrafter, PausesAfterFailuresAndComesBack) {
  NgramDrafter drafter;
  Append(drafter, std::vector<int32_t>(20, 7));
  int proposed = 0;
  for (int i = 0; i < 400; ++i) {
    const size_t size = Propose(drafter).size();
    proposed += size > 0;
    drafter.Report(static_cast<int64_t>(size), 0);
  }
  EXPECT_GT(proposed, 5);
  EXPECT_LT(proposed, 40);
  while (Propose(drafter).empty()) continue;
  drafter.Report(1, 1);
  EXPECT_FALSE(Propose(drafter).empty());
}

// The incremental index against a plain search from the back.
TEST(NgramDrafter, FindsWhatAPlainSearchFinds) {
  std::mt19937 random(3);
  NgramDrafter drafter;
  std::vector<int32_t> text;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<int32_t> token = {static_cast<int32_t>(random() % 12)};
    drafter.Append(token);
    text.push_back(token[0]);
    const auto draft = Propose(drafter, 1);
    std::vector<int32_t> expected;
    for (size_t n = 3; n >= 2 && expected.empty(); --n) {
      for (size_t end = text.size() - 1; end >= n && text.size() > n; --end) {
        if (!std::equal(text.end() - static_cast<std::ptrdiff_t>(n), text.end(),
                        text.begin() + static_cast<std::ptrdiff_t>(end - n))) {
          continue;
        }
        expected = {text[end]};
        break;
      }
    }
    ASSERT_EQ(draft, expected) << i;
  }
}

}  // namespace
}  // namespace lapidary
