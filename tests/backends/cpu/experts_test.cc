#include "backends/cpu/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/reference/reference.h"

namespace lapidary::cpu {
namespace {

TEST(RouteExpertsTest, ChoosesTheBestAndSharesOutTheirWeight) {
  const std::vector<float> scores = {0.0f, 2.0f, 1.0f, -1.0f}, scale = {1.0f, 2.0f, 4.0f, 8.0f};
  const ExpertRouting routing = RouteExperts(scores.data(), 1, 4, 2, scale);
  ASSERT_EQ(routing.choices.size(), 2u);
  EXPECT_EQ(routing.choices[0].expert, 1);
  EXPECT_EQ(routing.choices[1].expert, 2);
  const double share = std::exp(2.0) / (std::exp(2.0) + std::exp(1.0));
  EXPECT_NEAR(routing.choices[0].weight, share * 2, 1e-6);
  EXPECT_NEAR(routing.choices[1].weight, (1 - share) * 4, 1e-6);
}

TEST(RouteExpertsTest, TiesGoToTheLowerExpert) {
  const std::vector<float> scores = {1, 3, 3, 3}, scale(4, 1.0f);
  const ExpertRouting routing = RouteExperts(scores.data(), 1, 4, 2, scale);
  EXPECT_EQ(routing.choices[0].expert, 1);
  EXPECT_EQ(routing.choices[1].expert, 2);
}

TEST(RunExpertsTest, AgreesWithRunningEachRowAlone) {
  constexpr size_t kRows = 9, kExperts = 5, kHidden = 40, kWidth = 24;
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  const auto random = [&](size_t n) {
    std::vector<float> out(n);
    for (float& x : out) x = normal(generator);
    return out;
  };
  std::vector<std::vector<float>> gate_up, down;
  std::vector<WeightMatrix> gate_up_matrix, down_matrix;
  for (size_t e = 0; e < kExperts; ++e) {
    gate_up.push_back(random(2 * kWidth * kHidden));
    down.push_back(random(kHidden * kWidth));
  }
  for (size_t e = 0; e < kExperts; ++e) {
    gate_up_matrix.push_back({gate_up[e].data(), DType::kF32, 2 * kWidth, kHidden});
    down_matrix.push_back({down[e].data(), DType::kF32, kHidden, kWidth});
  }
  const std::vector<float> x = random(kRows * kHidden), scores = random(kRows * kExperts), scale(kExperts, 1.5f);
  const ExpertRouting routing = RouteExperts(scores.data(), kRows, kExperts, 2, scale);
  ThreadPool pool(2);
  MatmulScratch scratch;
  std::vector<float> out(kRows * kHidden);
  RunExperts(pool, scratch, gate_up_matrix, down_matrix, routing, x.data(), out.data());

  for (size_t r = 0; r < kRows; ++r) {
    const std::vector<float> row(x.begin() + static_cast<ptrdiff_t>(r * kHidden),
                                 x.begin() + static_cast<ptrdiff_t>((r + 1) * kHidden));
    std::vector<double> wanted(kHidden, 0.0);
    for (size_t i = 0; i < 2; ++i) {
      const ExpertChoice& choice = routing.choices[r * 2 + i];
      const size_t e = static_cast<size_t>(choice.expert);
      const std::vector<double> both = reference::Matmul(row, gate_up[e], 1, 2 * kWidth, kHidden);
      std::vector<float> activation(kWidth);
      for (size_t c = 0; c < kWidth; ++c)
        activation[c] = static_cast<float>(reference::GeluTanh(both[c]) * both[kWidth + c]);
      const std::vector<double> part = reference::Matmul(activation, down[e], 1, kHidden, kWidth);
      for (size_t c = 0; c < kHidden; ++c) wanted[c] += choice.weight * part[c];
    }
    for (size_t c = 0; c < kHidden; ++c) EXPECT_NEAR(out[r * kHidden + c], wanted[c], 2e-3) << r;
    std::vector<float> alone(kHidden);
    ExpertRouting mine{1, 2, {routing.choices[r * 2], routing.choices[r * 2 + 1]}};
    mine.choices[0].row = mine.choices[1].row = 0;
    RunExperts(pool, scratch, gate_up_matrix, down_matrix, mine, row.data(), alone.data());
    EXPECT_THAT(alone, testing::ElementsAreArray(out.begin() + static_cast<ptrdiff_t>(r * kHidden),
                                                 out.begin() + static_cast<ptrdiff_t>((r + 1) * kHidden)));
  }
}

}  // namespace
}  // namespace lapidary::cpu
