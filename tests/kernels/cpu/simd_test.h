#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "kernels/cpu/simd_dispatch.h"

namespace lapidary::cpu {

// Runs each test on every instruction set that this machine has.
class SimdTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { UseSimdTarget(GetParam()); }
  void TearDown() override { UseSimdTarget(0); }

  std::vector<float> Random(size_t n, float scale = 1.0f) {
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> out(n);
    for (float& x : out) x = normal(generator_);
    return out;
  }
  // Values that bfloat16 and (as long as they are small) float16 hold exactly.
  std::vector<float> RandomExact(size_t n, float scale = 1.0f) {
    std::vector<float> out = Random(n, scale);
    for (float& x : out) x = ToFloat(ToBF16(x));
    return out;
  }
  std::mt19937 generator_{42};
};

#define LAPIDARY_SIMD_SUITE(suite)                                    \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(SimdTargets()), \
                           [](const auto& target) { return "Target" + std::to_string(target.index); })

inline std::vector<uint16_t> ToBF16Bits(const std::vector<float>& x) {
  std::vector<uint16_t> out;
  for (float value : x) out.push_back(ToBF16(value).bits);
  return out;
}

// The largest |found - wanted| over the root mean square of wanted.
inline double RelativeError(const float* found, const std::vector<double>& wanted) {
  double largest = 0, squares = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(found[i] - wanted[i]);
    if (!(difference <= largest)) largest = difference;
    squares += wanted[i] * wanted[i];
  }
  return largest / std::sqrt(squares / static_cast<double>(wanted.size()));
}

}  // namespace lapidary::cpu
