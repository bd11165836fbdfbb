#include "cli/direct_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../engine/fake_backend.h"
#include "sampling/sampler.h"

namespace lapidary {
namespace {

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(DirectRunner, FilledChunkedAndRepeatedRunsGiveTheSameLogits) {
  const std::vector<int32_t> ids = ArbitraryIds(400, 40, 1);
  const auto part = [&](size_t begin, size_t end) { return std::span(ids).subspan(begin, end - begin); };
  FakeBackend whole_backend({}), backend({});
  DirectRunner whole(whole_backend, {.beyond = 400, .step_tokens = 400}, DType::kF32);
  const std::vector<float> expected = Copy(whole.Run(0, ids, 1, nullptr));
  ASSERT_EQ(expected.size(), 40u);

  DirectRunner runner(backend, {.sequences = 2, .depth = 310, .beyond = 90, .step_tokens = 64}, DType::kF32);
  runner.Fill(0, part(0, 310));
  runner.Fill(1, part(0, 310));
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const int s : {0, 1}) {
      runner.Run(s, part(310, 350), 0, nullptr);
      EXPECT_EQ(Copy(runner.Run(s, part(350, 400), 1, nullptr)), expected);
      runner.Truncate(s, 310);
    }
  }
  runner.TakeWork();
  std::vector<int32_t> last;
  for (size_t i = 310; i < 400; ++i) {
    last = {ids[i], ids[i]};
    runner.Decode(last);
  }
  EXPECT_THAT(last, ::testing::ElementsAre(Argmax(expected), Argmax(expected)));
  EXPECT_EQ(runner.TakeWork().steps, 90);
  EXPECT_EQ(runner.TakeWork().steps, 0);
  EXPECT_THAT(backend.faults, ::testing::IsEmpty());
}

TEST(ArbitraryIds, AreTheSameEachTimeAndOrdinaryTokens) {
  const std::vector<int32_t> ids = ArbitraryIds(1000, 262144, 1);
  EXPECT_EQ(ids, ArbitraryIds(1000, 262144, 1));
  EXPECT_NE(ids, ArbitraryIds(1000, 262144, 2));
  EXPECT_THAT(ids, ::testing::Each(::testing::AllOf(::testing::Ge(10), ::testing::Lt(262144))));
  EXPECT_THAT(ArbitraryIds(100, 5, 1), ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(5))));
}

}  // namespace
}  // namespace lapidary
