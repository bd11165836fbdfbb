#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "device_array.h"

namespace lapidary::gpu::testing {

inline std::vector<float> RandomRows(size_t count, float spread = 1.0f, uint32_t seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> out(count);
  for (float& value : out) value = normal(generator);
  return out;
}

// Rounds each value to bf16.
inline std::vector<uint16_t> ToBf16Bits(const std::vector<float>& x) {
  std::vector<uint16_t> out;
  for (float value : x) out.push_back(ToBF16(value).bits);
  return out;
}

inline std::vector<float> FromBf16Bits(const std::vector<uint16_t>& x) {
  std::vector<float> out;
  for (uint16_t bits : x) out.push_back(ToFloat(BF16{bits}));
  return out;
}

// The largest difference, relative to the largest wanted value.
template <typename T>
double RelativeError(const std::vector<float>& found, const std::vector<T>& wanted) {
  EXPECT_EQ(found.size(), wanted.size());
  double top = 0, worst = 0;
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    const double difference = std::abs(double{found[i]} - double{wanted[i]});
    if (std::isnan(difference)) return difference;
    top = std::max(top, std::abs(double{wanted[i]}));
    worst = std::max(worst, difference);
  }
  return top == 0 ? worst : worst / top;
}

}  // namespace lapidary::gpu::testing
