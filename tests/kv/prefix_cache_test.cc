#include "kv/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <random>

namespace lapidary {
namespace {

using ::testing::ElementsAre;

constexpr int kSliding = 0, kFull = 1;
using Ids = std::vector<int32_t>;

KvLayout Layout(int64_t window) {
  KvLayout layout;
  layout.groups[kSliding] = {.layers = 2, .kv_heads = 1, .head_dim = 4, .window = window};
  layout.groups[kFull] = {.layers = 1, .kv_heads = 1, .head_dim = 8, .window = 0};
  return layout;
}

Ids Text(int64_t length, uint32_t seed) {
  std::mt19937 random(seed);
  Ids ids(static_cast<size_t>(length));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 1000);
  return ids;
}

// A cache with pools whose blocks hold rows: what was written there, so that every use of a wrong row is seen.
class PrefixCacheTest : public ::testing::Test {
 protected:
  // A sequence as the engine runs it: blocks, place in the tree and the tokens whose K/V is there.
  struct Running {
    Ids tokens;
    int64_t cached = 0;
    SequenceBlocks blocks;
    PrefixCache::Cursor cursor;
  };

  void Make(int64_t window, int32_t sliding_blocks, int32_t full_blocks) {
    layout_ = Layout(window);
    pools_ = {BlockPool(sliding_blocks), BlockPool(full_blocks)};
    rows_[kSliding].assign(static_cast<size_t>(sliding_blocks), std::vector<int64_t>(kKvBlockTokens, -1));
    rows_[kFull].assign(static_cast<size_t>(full_blocks), std::vector<int64_t>(kKvBlockTokens, -1));
    cache_.emplace(layout_, pools_);
  }

  Running Start(const Ids& tokens, bool copies = true) {
    Running running{tokens, 0, SequenceBlocks(layout_, pools_), {}};
    const PrefixCache::Match match = cache_->Find(tokens, static_cast<int64_t>(tokens.size()) - 1);
    EXPECT_LE(match.tokens, match.reach);
    running.cached = cache_->Start(match, running.blocks, running.cursor, [&](int group, int32_t from, int32_t to) {
      if (copies) Rows(group, to) = Rows(group, from);
      return copies;
    });
    EXPECT_LE(running.cached, match.tokens);
    CheckRows(running);
    return running;
  }

  std::vector<int64_t>& Rows(int group, int32_t block) {
    return rows_[static_cast<size_t>(group)][static_cast<size_t>(block)];
  }

  // What K/V row `position` of a text holds: it depends on all tokens up to there.
  static int64_t Row(const Ids& tokens, int64_t position) {
    uint64_t hash = 7;
    for (int64_t p = 0; p <= position; ++p) {
      hash = (hash ^ static_cast<uint64_t>(tokens[static_cast<size_t>(p)])) * 0x9e3779b97f4a7c15u;
    }
    return static_cast<int64_t>(hash >> 2);
  }

  // All that the next position sees is there.
  void CheckRows(const Running& running) {
    for (int g = 0; g < kKvGroups; ++g) {
      const int64_t first = FirstSeenBlock(layout_.groups[static_cast<size_t>(g)], running.cached) * kKvBlockTokens;
      const int64_t window = layout_.groups[static_cast<size_t>(g)].window;
      for (int64_t p = first; p < running.cached; ++p) {
        if (window > 0 && p <= running.cached - window) continue;
        const int32_t block = running.blocks.BlockAt(g, p / kKvBlockTokens);
        ASSERT_GE(block, 0) << "position " << p << " of group " << g;
        ASSERT_EQ(Rows(g, block)[static_cast<size_t>(p % kKvBlockTokens)], Row(running.tokens, p)) << p;
      }
    }
  }

  // Computes positions up to `end`; false without room.
  bool Run(Running& running, int64_t end) {
    if (!running.blocks.Reserve(end)) return false;
    for (int64_t p = running.cached; p < end; ++p) {
      for (int g = 0; g < kKvGroups; ++g) {
        Rows(g, running.blocks.BlockAt(g, p / kKvBlockTokens))[static_cast<size_t>(p % kKvBlockTokens)] =
            Row(running.tokens, p);
      }
    }
    running.cached = end;
    cache_->Extend(running.tokens, end, running.blocks, running.cursor);
    running.blocks.ReleaseBefore(end);
    return true;
  }

  void End(Running& running) {
    cache_->Finish(running.tokens, running.cached, running.blocks, running.cursor);
    running.blocks.MarkWindow(running.cached);
    running.blocks.Clear();
    running.cursor = {};
  }

  // Runs a text of which the last token stays uncomputed, and ends it; returns what the cache had.
  int64_t Serve(const Ids& tokens) {
    Running running = Start(tokens);
    const int64_t had = running.cached;
    const auto end = static_cast<int64_t>(tokens.size()) - 1;
    while (running.cached < end) EXPECT_TRUE(Run(running, std::min(end, running.cached + 50)));
    End(running);
    return had;
  }

  KvLayout layout_;
  BlockPools pools_{BlockPool(0), BlockPool(0)};
  std::array<std::vector<std::vector<int64_t>>, kKvGroups> rows_;
  std::optional<PrefixCache> cache_;
};

TEST_F(PrefixCacheTest, FindsTheLongestCommonBeginning) {
  Make(100, 100, 100);
  const Ids text = Text(300, 1);
  EXPECT_EQ(Serve(text), 0);
  EXPECT_EQ(Serve(text), 299);
  for (const size_t place : {1u, 63u, 64u, 65u, 200u, 290u}) {
    Ids other = text;
    other[place] += 1;
    EXPECT_EQ(Serve(other), static_cast<int64_t>(place));
  }
  EXPECT_EQ(Serve(Text(300, 2)), 0);
  EXPECT_EQ(Serve({text[0]}), 0);
  EXPECT_EQ(Serve(Ids(text.begin(), text.begin() + 40)), 39);
}

TEST_F(PrefixCacheTest, SharesWholeBlocksAndKeepsThePartialOneApart) {
  Make(1000, 100, 100);
  const Ids text = Text(200, 1);
  Running first = Start(text);
  ASSERT_TRUE(Run(first, 199));
  Running second = Start(text);
  EXPECT_EQ(second.cached, 192);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(second.blocks.BlockAt(kFull, i), first.blocks.BlockAt(kFull, i));
  End(first);
  Running third = Start(text);
  EXPECT_EQ(third.cached, 199);
  EXPECT_EQ(third.blocks.BlockAt(kFull, 2), second.blocks.BlockAt(kFull, 2));
  EXPECT_EQ(pools_[kFull].references(third.blocks.BlockAt(kFull, 3)), 1);
  End(second);
  End(third);
  EXPECT_EQ(pools_[kFull].used_count(), 0);
}

// Two that compute the same prefix side by side end with one copy of it.
TEST_F(PrefixCacheTest, EqualBlocksBecomeOne) {
  Make(1000, 100, 100);
  const Ids text = Text(300, 1);
  Running first = Start(text), second = Start(text);
  ASSERT_TRUE(Run(first, 256));
  ASSERT_TRUE(Run(second, 130));
  EXPECT_EQ(pools_[kFull].used_count(), 4 + 1);
  CheckRows(second);
  ASSERT_TRUE(Run(second, 256));
  EXPECT_EQ(pools_[kFull].used_count(), 4);
  CheckRows(second);
}

TEST_F(PrefixCacheTest, WithoutTheWindowAPrefixIsNotUsed) {
  Make(100, 8, 100);
  const Ids text = Text(1000, 1);
  EXPECT_EQ(Serve(text), 0);
  Ids other = text;
  other[300] += 1;
  const PrefixCache::Match match = cache_->Find(other, 999);
  EXPECT_EQ(match.reach, 300);
  EXPECT_EQ(match.tokens, 0);
  EXPECT_EQ(cache_->Find(text, 999).tokens, 999);
}

TEST_F(PrefixCacheTest, AShorterTailGoesWhenALongerOneComes) {
  Make(1000, 100, 100);
  const Ids text = Text(64 + 64, 1);
  for (const int64_t length : {80, 100, 120}) {
    Serve(Ids(text.begin(), text.begin() + length));
    EXPECT_EQ(cache_->nodes(), 2);
    EXPECT_EQ(pools_[kFull].kept_count(), 2);
  }
  Serve(Ids(text.begin(), text.begin() + 90));
  EXPECT_EQ(cache_->nodes(), 2);
}

TEST_F(PrefixCacheTest, TheLeastRecentlyUsedGoesFirst) {
  Make(1000, 12, 12);
  const Ids a = Text(4 * 64 + 1, 1), b = Text(4 * 64 + 1, 2), c = Text(4 * 64 + 1, 3), d = Text(2 * 64 + 1, 4);
  for (const Ids& text : {a, b, c}) EXPECT_EQ(Serve(text), 0);
  EXPECT_EQ(Serve(a), 256);
  Serve(d);
  EXPECT_EQ(cache_->Find(a, 256).tokens, 256);
  EXPECT_EQ(cache_->Find(b, 256).tokens, 128);  // its end went first
  EXPECT_EQ(cache_->Find(c, 256).tokens, 256);
  EXPECT_EQ(cache_->nodes(), 12);
}

TEST_F(PrefixCacheTest, GroupsWithoutLayersAreNotAskedFor) {
  Make(100, 50, 0);
  layout_.groups[kFull].layers = 0;
  Running running{Text(300, 1), 0, SequenceBlocks(layout_, pools_), {}};
  ASSERT_TRUE(running.blocks.Reserve(299));
  cache_->Extend(running.tokens, 299, running.blocks, running.cursor);
  running.cached = 299;
  End(running);
  EXPECT_EQ(cache_->Find(running.tokens, 299).tokens, 299);
}

struct RandomCase {
  const char* name;
  int64_t window;
  int32_t sliding_blocks, full_blocks;
  bool copies;
};

class PrefixCacheRandom : public PrefixCacheTest, public ::testing::WithParamInterface<RandomCase> {
 protected:
  Ids RandomText() {
    Ids text = Text(400, random_() % 3);
    text.resize(1 + random_() % 400);
    if (random_() % 2) text[random_() % text.size()] = 5000;
    return text;
  }

  // References are those of the running sequences, and nothing else is held.
  void CheckPools(std::list<Running>& running) {
    for (int g = 0; g < kKvGroups; ++g) {
      const BlockPool& pool = pools_[static_cast<size_t>(g)];
      std::map<int32_t, int> references;
      for (const Running& r : running) {
        for (const int32_t block : r.blocks.View(g).blocks) ++references[block];
      }
      for (int32_t block = 0; block < pool.count(); ++block) {
        const auto found = references.find(block);
        ASSERT_EQ(pool.references(block), found == references.end() ? 0 : found->second);
      }
      ASSERT_EQ(pool.used_count(), static_cast<int32_t>(references.size()));
    }
    ASSERT_LE(cache_->nodes(), 8 * (pools_[0].count() + pools_[1].count()));
  }

  std::mt19937 random_{11};
};

TEST_P(PrefixCacheRandom, EverySequenceFindsItsOwnRows) {
  const RandomCase& c = GetParam();
  Make(c.window, c.sliding_blocks, c.full_blocks);
  std::list<Running> running;
  int64_t hits = 0, ended = 0;
  for (int i = 0; i < 6000 && !HasFatalFailure(); ++i) {
    if (random_() % 6 == 0 && running.size() < 5) {
      running.push_back(Start(RandomText(), c.copies));
      hits += running.back().cached;
    } else if (!running.empty()) {
      auto it = std::next(running.begin(), static_cast<ptrdiff_t>(random_() % running.size()));
      const int64_t end = std::min<int64_t>(it->cached + 1 + random_() % 90, static_cast<int64_t>(it->tokens.size()));
      const bool whole = it->cached == static_cast<int64_t>(it->tokens.size());
      if (whole || random_() % 12 == 0 || !Run(*it, end)) {
        // Ended, given up, or without room: it leaves what it has, or nothing.
        if (random_() % 4) End(*it);
        running.erase(it);
        ++ended;
      } else {
        CheckRows(*it);
      }
    }
    CheckPools(running);
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(ended, 300);
  running.clear();
  CheckPools(running);
}

INSTANTIATE_TEST_SUITE_P(
    All, PrefixCacheRandom,
    ::testing::Values(RandomCase{"Roomy", 100, 200, 200, true}, RandomCase{"Tight", 100, 14, 16, true},
                      RandomCase{"FewWindows", 100, 12, 60, true}, RandomCase{"WithoutCopies", 100, 14, 16, false},
                      RandomCase{"LongWindow", 1000, 16, 16, true}, RandomCase{"WindowOfOne", 1, 10, 16, true},
                      RandomCase{"WindowOfABlock", 64, 14, 16, true}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lapidary
