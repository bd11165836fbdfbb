#include "backends/gpu/sample_input.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "testing/test_backend.h"

namespace lapidary::gpu {
namespace {

template <typename T>
std::vector<T> OnHost(const T* from, size_t count) {
  std::vector<T> values(count);
  CopyToHost(values.data(), from, count * sizeof(T), nullptr);
  Synchronize(nullptr);
  return values;
}

class SampleInputTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoTestBackend(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(SampleInputTest, RowsAndTheirListsLieWhereTheyBelong) {
  SamplingParams first, second;
  first.temperature = 0.5;
  first.min_p = 0.25;
  first.seed = 9;
  first.top_k = int64_t{1} << 40;
  first.suppress_tokens = {4, 5};
  second.logit_bias = {{6, 1.5}, {7, -2.0}};
  second.frequency_penalty = 0.5;
  const std::vector<TouchedId> touched = {{11, 2, false}};
  const std::vector<RowSampling> choices = {{&first, 3, {}}, {&second, 0, touched}};
  const std::vector<int32_t> places = {1, 3};
  SampleInput input;
  input.Send(choices, places, nullptr);
  const SampleArgs args = input.Args(0);
  const std::vector<SamplingRow> rows = OnHost(args.rows, 4);
  EXPECT_EQ(rows[0].temperature, 0);
  EXPECT_EQ(rows[0].suppress_end, 0);
  EXPECT_EQ(rows[1].temperature, 0.5);
  EXPECT_EQ(rows[1].min_logit, 0.5 * std::log(0.25));
  EXPECT_EQ(rows[1].seed, 9u);
  EXPECT_EQ(rows[1].draw, 3u);
  EXPECT_EQ(rows[1].top_k, INT32_MAX);
  ASSERT_EQ(rows[1].suppress_end - rows[1].suppress_begin, 2);
  EXPECT_EQ(OnHost(args.suppress + rows[1].suppress_begin, 2), (std::vector<int32_t>{4, 5}));
  ASSERT_EQ(rows[3].bias_end - rows[3].bias_begin, 2);
  EXPECT_EQ(OnHost(args.bias + rows[3].bias_begin, 2)[1].bias, -2.0f);
  ASSERT_EQ(rows[3].touched_end - rows[3].touched_begin, 1);
  EXPECT_EQ(OnHost(args.touched + rows[3].touched_begin, 1)[0].answer_count, 2);
  EXPECT_EQ(OnHost(input.Args(3).rows, 1)[0].frequency_penalty, 0.5);
}

TEST_F(SampleInputTest, AddressesMoveOnlyWhenItGrows) {
  SamplingParams params;
  const std::vector<int32_t> places = {0};
  SampleInput input;
  input.Send(std::vector<RowSampling>{{&params, 0, {}}}, places, nullptr);
  const int version = input.version();
  params.suppress_tokens.assign(60, 1);
  input.Send(std::vector<RowSampling>{{&params, 1, {}}}, places, nullptr);
  EXPECT_EQ(input.version(), version);
  params.suppress_tokens.assign(100, 1);
  input.Send(std::vector<RowSampling>{{&params, 1, {}}}, places, nullptr);
  EXPECT_NE(input.version(), version);
}

}  // namespace
}  // namespace lapidary::gpu
