#include "kernels/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lapidary::reference {
namespace {

TEST(ReferenceTest, Matmul) {
  EXPECT_EQ(Matmul({1, 2, 3, 4}, {1, 0, 0, 1, 1, 1}, 2, 3, 2), (std::vector<double>{1, 2, 3, 3, 4, 7}));
}

TEST(ReferenceTest, RmsNormOfEqualNumbersIsTheWeight) {
  const std::vector<double> out = RmsNorm({3, 3, 3, 3}, {1, 2, 3, 4}, 0.0, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], static_cast<double>(i + 1), 1e-12);
}

TEST(ReferenceTest, GeluTanhKnownValues) {
  EXPECT_EQ(GeluTanh(0), 0);
  EXPECT_NEAR(GeluTanh(1), 0.841192, 1e-6);
  EXPECT_NEAR(GeluTanh(-27), 0, 1e-12);
  EXPECT_NEAR(GeluTanh(27), 27, 1e-12);
}

TEST(ReferenceTest, RotateTurnsThePairsAndLeavesTheRest) {
  const std::vector<double> out = Rotate({1, 5, 0, 7}, 1, 100.0, M_PI / 2);
  EXPECT_NEAR(out[0], 0, 1e-12);
  EXPECT_NEAR(out[2], 1, 1e-12);
  EXPECT_EQ(out[1], 5);
  EXPECT_EQ(out[3], 7);
}

TEST(ReferenceTest, AttentionSeesTheWindowOnly) {
  const std::vector<float> zero_scores = {0, 0, 0}, v = {1, 2, 4};
  EXPECT_NEAR(Attention({1, 1, 1, 0, 2}, {1}, zero_scores, v)[0], 7.0 / 3.0, 1e-12);
  EXPECT_NEAR(Attention({1, 1, 1, 2, 2}, {1}, zero_scores, v)[0], 3.0, 1e-12);
}

}  // namespace
}  // namespace lapidary::reference
