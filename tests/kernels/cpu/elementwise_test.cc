#include "kernels/cpu/elementwise.h"

#include <gmock/gmock.h>

#include <limits>

#include "kernels/reference/reference.h"
#include "simd_test.h"

namespace lapidary::cpu {
namespace {

class ElementwiseTest : public SimdTest {};
LAPIDARY_SIMD_SUITE(ElementwiseTest);

TEST_P(ElementwiseTest, RmsNorm) {
  for (size_t n : {1, 7, 16, 33, 64, 96, 1536}) {
    const std::vector<float> x = Random(3 * n, 5.0f), weight = Random(n);
    std::vector<float> out(3 * n);
    RmsNorm(x.data(), weight.data(), 1e-6f, 3, n, out.data());
    EXPECT_LE(RelativeError(out.data(), reference::RmsNorm(x, weight, 1e-6, n)), 1e-6) << n;
    std::vector<float> in_place = x;
    RmsNorm(in_place.data(), nullptr, 1e-6f, 3, n, in_place.data());
    EXPECT_LE(RelativeError(in_place.data(), reference::RmsNorm(x, {}, 1e-6, n)), 1e-6) << n;
  }
}

TEST_P(ElementwiseTest, AddRmsNorm) {
  for (size_t n : {5, 16, 100}) {
    const std::vector<float> y = Random(2 * n), weight = Random(n), h = Random(2 * n);
    std::vector<float> out = h;
    AddRmsNorm(y.data(), weight.data(), 1e-6f, 2, n, out.data());
    std::vector<double> wanted = reference::RmsNorm(y, weight, 1e-6, n);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += h[i];
    EXPECT_LE(RelativeError(out.data(), wanted), 1e-6) << n;
  }
}

TEST_P(ElementwiseTest, GeluMulSaturates) {
  std::vector<float> gate = Random(53, 4.0f);
  for (float x : {27.0f, -27.0f, 1e4f, -1e4f, 0.0f, -0.0f, 1e-20f}) gate.push_back(x);
  const std::vector<float> up(gate.size(), 2.0f);
  std::vector<float> out = gate;
  GeluMul(out.data(), up.data(), 1, gate.size(), gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double wanted = 2.0 * reference::GeluTanh(gate[i]);
    EXPECT_NEAR(out[i], wanted, 1e-6 * std::max(1.0, std::abs(wanted))) << gate[i];
  }
}

TEST_P(ElementwiseTest, GeluMulReadsStridedRows) {
  const std::vector<float> gate = Random(2 * 20), up = Random(2 * 50);
  std::vector<float> out = gate;
  GeluMul(out.data(), up.data() + 30, 2, 20, 50);
  for (size_t r = 0; r < 2; ++r) {
    for (size_t i = 0; i < 20; ++i)
      EXPECT_NEAR(out[r * 20 + i], reference::GeluTanh(gate[r * 20 + i]) * up[r * 50 + 30 + i], 1e-5);
  }
}

TEST_P(ElementwiseTest, Softcap) {
  const std::vector<float> x = Random(101, 40.0f);
  std::vector<float> out = x;
  Softcap(out.data(), out.size(), 30.0f);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(out[i], 30.0 * std::tanh(x[i] / 30.0), 5e-6) << x[i];
}

TEST_P(ElementwiseTest, Rotate) {
  for (const auto& [d, pairs] : {std::pair<size_t, size_t>{256, 128}, {512, 64}, {48, 6}, {32, 16}}) {
    const std::vector<float> x = Random(2 * d);
    std::vector<float> cos(pairs), sin(pairs), out = x;
    for (size_t j = 0; j < pairs; ++j) {
      const double angle = 17.0 * std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(d));
      cos[j] = static_cast<float>(std::cos(angle)), sin[j] = static_cast<float>(std::sin(angle));
    }
    Rotate(out.data(), 2, d, cos.data(), sin.data(), pairs);
    for (size_t h = 0; h < 2; ++h) {
      const std::vector<float> head(x.begin() + static_cast<ptrdiff_t>(h * d),
                                    x.begin() + static_cast<ptrdiff_t>((h + 1) * d));
      EXPECT_LE(RelativeError(out.data() + h * d, reference::Rotate(head, pairs, 10000.0, 17.0)), 1e-6) << d;
    }
  }
}

TEST_P(ElementwiseTest, LoadRowWidensAndScales) {
  const std::vector<float> x = RandomExact(37);
  const std::vector<uint16_t> bits = ToBF16Bits(x);
  std::vector<float> out(37);
  LoadRow(bits.data(), DType::kBF16, 37, 2.0f, out.data());
  for (size_t i = 0; i < 37; ++i) EXPECT_EQ(out[i], 2.0f * x[i]);
  const uint16_t half[3] = {0x3c00, 0xc000, 0x3555};  // 1, -2, 0.333251953125
  LoadRow(half, DType::kF16, 3, 1.0f, out.data());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], 0.333251953125f);
}

TEST_P(ElementwiseTest, AllFiniteSeesEveryElement) {
  for (size_t n : {1, 16, 37, 100}) {
    std::vector<float> x = Random(n);
    EXPECT_TRUE(AllFinite(x.data(), n));
    for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                      std::numeric_limits<float>::quiet_NaN()}) {
      for (size_t i = 0; i < n; ++i) {
        const float good = std::exchange(x[i], bad);
        EXPECT_FALSE(AllFinite(x.data(), n)) << i << " of " << n;
        x[i] = good;
      }
    }
  }
}

}  // namespace
}  // namespace lapidary::cpu
