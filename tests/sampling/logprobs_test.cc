#include "sampling/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lapidary {
namespace {

TEST(Logprobs, AreTheLogSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  const TokenLogprobs found = ComputeLogprobs(logits, 1, 2);
  EXPECT_NEAR(found.logprob, std::log(0.25), 1e-6);
  ASSERT_EQ(found.top.size(), 2u);
  EXPECT_EQ(found.top[0].id, 2);
  EXPECT_NEAR(found.top[0].logprob, std::log(0.625), 1e-6);
  EXPECT_EQ(found.top[1].id, 1);
  EXPECT_EQ(found.top[1].logprob, found.logprob);
}

TEST(Logprobs, EqualsAreInOrderOfId) {
  const TokenLogprobs found = ComputeLogprobs(std::vector<float>{1, 3, 3, 0, 3, 2}, 0, 4);
  std::vector<int32_t> ids;
  for (const IdLogprob& entry : found.top) ids.push_back(entry.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 4, 5}));
}

TEST(Logprobs, AsManyAsThereAre) {
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, never, 2};
  EXPECT_TRUE(ComputeLogprobs(logits, 0, 0).top.empty());
  EXPECT_TRUE(ComputeLogprobs(logits, 0, -1).top.empty());
  EXPECT_EQ(ComputeLogprobs(logits, 0, 20).top.size(), 2u);
}

TEST(Logprobs, LargeLogitsDoNotOverflow) {
  const TokenLogprobs found = ComputeLogprobs(std::vector<float>{3e38f, -3e38f}, 0, 2);
  EXPECT_EQ(found.logprob, 0);
  EXPECT_EQ(found.top[0].logprob, 0);
}

}  // namespace
}  // namespace lapidary
