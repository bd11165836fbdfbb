#include "kernels/gpu/matmul_few.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "device_array.h"

namespace lapidary::gpu {
namespace {

using testing::DeviceArray;

std::vector<uint16_t> RandomBf16(size_t n, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<uint16_t> out(n);
  for (uint16_t& x : out) x = ToBF16(normal(random)).bits;
  return out;
}

std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

using Rows = std::vector<std::vector<double>>;  // [kFewRows][width]

// [rows][n] in double; w [n, k].
Rows Product(const Rows& x, const std::vector<uint16_t>& w, int64_t k) {
  const size_t n = w.size() / static_cast<size_t>(k);
  Rows out(x.size(), std::vector<double>(n));
  for (size_t r = 0; r < x.size(); ++r) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < static_cast<size_t>(k); ++j) {
        out[r][i] += x[r][j] * ToFloat(BF16{w[i * static_cast<size_t>(k) + j]});
      }
    }
  }
  return out;
}

// values [kFewRows, width].
Rows RowsOf(const std::vector<float>& values, int64_t width) {
  Rows out;
  for (auto row = values.begin(); row != values.end(); row += width) out.emplace_back(row, row + width);
  return out;
}

// found [kFewRows, n], of which the first `rows` rows count.
void ExpectRows(const std::vector<float>& found, const Rows& wanted, int rows) {
  const Rows all = RowsOf(found, static_cast<int64_t>(wanted[0].size()));
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < all[r].size(); ++i) {
      error += (all[r][i] - wanted[r][i]) * (all[r][i] - wanted[r][i]);
      norm += wanted[r][i] * wanted[r][i];
    }
    EXPECT_LE(std::sqrt(error / norm), 3e-6) << "row " << r;
  }
}

class MatmulFewTest : public testing::GpuTest {
 protected:
  using Launcher = void (*)(const char* what, gpuStream stream, const MatmulFewArgs& args);

  void Run(Launcher launch, MatmulFewArgs args, int rows) {
    args.rows = rows;
    launch("test", gpuStream{}, args);
    Synchronize(gpuStream{});
  }
};

struct Shape {
  int64_t n, k;
  int rows;
};

class MatmulFewShapes : public MatmulFewTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(MatmulFewShapes, StoresProducts) {
  const auto [n, k, rows] = GetParam();
  const std::vector<uint16_t> w = RandomBf16(static_cast<size_t>(n * k), 1, 0.05f);
  const std::vector<float> x = RandomFloats(static_cast<size_t>(kFewRows * k), 2);
  const DeviceArray<uint16_t> device_w(w);
  const DeviceArray<float> device_x(x);
  DeviceArray<float> y(static_cast<size_t>(kFewRows * n));
  MatmulFewArgs args;
  args.w = {device_w.data(), static_cast<int32_t>(n)};
  args.k = static_cast<int32_t>(k);
  args.x = device_x.data();
  args.y = y.data();
  Run(MultiplyFew, args, rows);
  ExpectRows(y.ToHost(), Product(RowsOf(x, k), w, k), rows);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MatmulFewShapes,
                         ::testing::Values(Shape{16, 32, 1}, Shape{40, 8, 8}, Shape{100, 96, 3}, Shape{33, 160, 8},
                                           Shape{96, 1536, 1}, Shape{64, 1544, 2}, Shape{24, 3072, 5},
                                           Shape{17, 4000, 8}, Shape{2000, 64, 8}));

TEST_F(MatmulFewTest, RowsPastTheLastAreNotWritten) {
  const int64_t k = 64, n = 60;
  const std::vector<float> x = RandomFloats(kFewRows * k, 4);
  const DeviceArray<uint16_t> w(RandomBf16(n * k, 3, 0.1f));
  const DeviceArray<float> device_x(x);
  DeviceArray<float> y(kFewRows * n);
  MatmulFewArgs args;
  args.w = {w.data(), n};
  args.k = k;
  args.x = device_x.data();
  args.y = y.data();
  Run(MultiplyFew, args, 2);
  const std::vector<float> found = y.ToHost();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(std::isnan(found[i]), i >= 2 * n) << i;
}

TEST_F(MatmulFewTest, HeadCapsAndFindsTheBest) {
  const int64_t k = 96, n = 1003;
  std::vector<uint16_t> w = RandomBf16(n * k, 16, 0.5f);
  std::copy_n(w.begin() + 700 * k, k, w.begin() + 300 * k);  // equal logits: the lower id counts
  std::vector<float> x = RandomFloats(kFewRows * k, 17);
  for (size_t j = 0; j < k; ++j) x[j] = 4.0f * ToFloat(BF16{w[700 * k + j]});
  const DeviceArray<uint16_t> device_w(w);
  const DeviceArray<float> device_x(x);
  const auto ctas = static_cast<size_t>(MatmulFewCtas());
  DeviceArray<float> y(kFewRows * n);
  DeviceArray<BestLogit> best(ctas * kFewRows);
  DeviceArray<int32_t> ids(kFewRows);
  MatmulFewArgs args;
  args.w = {device_w.data(), n};
  args.k = k;
  args.x = device_x.data();
  args.y = y.data();
  args.softcap = 30.0f;
  args.best = best.data();
  Run(MultiplyFewHead, args, 6);
  BestOfCtas(gpuStream{}, 6, best.data(), ids.data());
  const std::vector<float> found = y.ToHost();
  Rows wanted = Product(RowsOf(x, k), w, k);
  for (auto& row : wanted) {
    for (double& v : row) v = 30 * std::tanh(v / 30);
  }
  ExpectRows(found, wanted, 6);
  const std::vector<int32_t> chosen = ids.ToHost();
  EXPECT_EQ(chosen[0], 300);
  for (size_t r = 0; r < 6; ++r) {
    const auto begin = found.begin() + static_cast<ptrdiff_t>(r * n);
    EXPECT_EQ(chosen[r], std::max_element(begin, begin + n) - begin) << "row " << r;
  }
  EXPECT_EQ(chosen[6], -1);  // 0xff: not written
}

// The same bits for a row alone and among others, at another place of the batch.
TEST_F(MatmulFewTest, RowsDoNotDependOnEachOther) {
  constexpr int64_t k = 1600, n = 40;
  const DeviceArray<uint16_t> w(RandomBf16(n * k, 20, 0.1f));
  const std::vector<float> x = RandomFloats(kFewRows * k, 21);
  const DeviceArray<float> all(x), last(std::vector<float>(x.end() - k, x.end()));
  DeviceArray<float> together(kFewRows * n), alone(kFewRows * n);
  MatmulFewArgs args;
  args.w = {w.data(), n};
  args.k = k;
  args.x = all.data();
  args.y = together.data();
  Run(MultiplyFew, args, kFewRows);
  args.x = last.data();
  args.y = alone.data();
  Run(MultiplyFew, args, 1);
  const std::vector<float> many = together.ToHost(), one = alone.ToHost();
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + n, many.end() - n));
}

}  // namespace
}  // namespace lapidary::gpu
