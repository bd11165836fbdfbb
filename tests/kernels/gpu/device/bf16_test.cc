#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class Bf16Test : public GpuTest {};

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<Bf16Results> Convert(const std::vector<float>& values) {
  const DeviceArray<float> x(values);
  const DeviceArray<Bf16Results> out(values.size());
  RunBf16(gpuStream{}, x.data(), out.data(), static_cast<int>(values.size()));
  return out.ToHost();
}

TEST_F(Bf16Test, RoundsToNearestEven) {
  const std::vector<float> values = {1.0f,
                                     FromBits(0x3f808000),
                                     FromBits(0x3f808001),
                                     FromBits(0x3f818000),
                                     FromBits(0x3f807fff),
                                     -0.0f,
                                     FromBits(0x7f7fffff),
                                     FromBits(0x00000001),
                                     std::numeric_limits<float>::infinity(),
                                     std::numeric_limits<float>::quiet_NaN(),
                                     FromBits(0xff800001)};
  const std::vector<uint16_t> wanted = {0x3f80, 0x3f80, 0x3f81, 0x3f82, 0x3f80, 0x8000,
                                        0x7f80, 0x0000, 0x7f80, 0x7fff, 0x7fff};
  const std::vector<Bf16Results> results = Convert(values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(results[i].rounded, wanted[i]) << i;
    EXPECT_EQ(results[i].packed, wanted[i] | static_cast<uint32_t>(wanted[(i + 1) % wanted.size()]) << 16) << i;
  }
}

TEST_F(Bf16Test, ThreeTermsAreTheFloat) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::ldexp(std::sin(static_cast<float>(i) * 1.7f), i % 40 - 20));
  const std::vector<Bf16Results> results = Convert(values);
  for (size_t i = 0; i < values.size(); ++i) {
    const Bf16Results& r = results[i];
    const float next = values[(i + 1) % values.size()];
    EXPECT_EQ(r.terms[0], r.packed);
    EXPECT_EQ(r.low_values[0], FromBits(static_cast<uint32_t>(r.rounded) << 16));
    EXPECT_LE(std::abs(r.low_values[0] + r.low_values[1] - values[i]), std::abs(values[i]) * 0x1p-16f) << values[i];
    EXPECT_EQ(r.low_values[0] + (r.low_values[1] + r.low_values[2]), values[i]);
    EXPECT_EQ(r.high_values[0] + (r.high_values[1] + r.high_values[2]), next);
  }
}

}  // namespace
}  // namespace lapidary::gpu::testing
