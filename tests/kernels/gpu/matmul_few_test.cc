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

double Gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

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

// values [parts, kFewRows, width] added up.
Rows RowsOf(const std::vector<float>& values, int parts, int64_t width) {
  Rows out(kFewRows, std::vector<double>(static_cast<size_t>(width)));
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t r = i / static_cast<size_t>(width) % kFewRows;
    out[r][i % static_cast<size_t>(width)] += values[i];
  }
  EXPECT_EQ(values.size(), static_cast<size_t>(parts * kFewRows * width));
  return out;
}

std::vector<double> Normed(const std::vector<double>& x, const std::vector<float>& w, double eps) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double factor = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * factor * w[i]);
  return out;
}

// found [parts, kFewRows, n] summed against wanted, for the first `rows` rows.
void ExpectRows(const std::vector<float>& found, int parts, const Rows& wanted, int rows) {
  const auto n = static_cast<int64_t>(wanted[0].size());
  for (int r = 0; r < rows; ++r) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int p = 0; p < parts; ++p) sum += found[static_cast<size_t>((p * kFewRows + r) * n + i)];
      const double w = wanted[static_cast<size_t>(r)][static_cast<size_t>(i)];
      error += (sum - w) * (sum - w);
      norm += w * w;
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
  int rows, parts;
};

class MatmulFewShapes : public MatmulFewTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(MatmulFewShapes, StoresProducts) {
  const auto [n, k, rows, parts] = GetParam();
  const std::vector<uint16_t> w = RandomBf16(static_cast<size_t>(n * k), 1, 0.05f);
  const std::vector<float> x = RandomFloats(static_cast<size_t>(parts * kFewRows * k), 2);
  const DeviceArray<uint16_t> device_w(w);
  const DeviceArray<float> device_x(x);
  const int splits = MatmulFewSplits(k);
  DeviceArray<float> y(static_cast<size_t>(splits * kFewRows * n));
  MatmulFewArgs args;
  args.w = {device_w.data(), static_cast<int32_t>(n)};
  args.k = static_cast<int32_t>(k);
  args.k_splits = splits;
  args.x = device_x.data();
  args.x_parts = parts;
  args.y = y.data();
  Run(MultiplyFew, args, rows);
  ExpectRows(y.ToHost(), splits, Product(RowsOf(x, parts, k), w, k), rows);
  // Without splits a long k takes several phases.
  args.k_splits = 1;
  Run(MultiplyFew, args, rows);
  std::vector<float> whole = y.ToHost();
  whole.resize(static_cast<size_t>(kFewRows * n));
  ExpectRows(whole, 1, Product(RowsOf(x, parts, k), w, k), rows);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MatmulFewShapes,
                         ::testing::Values(Shape{16, 32, 1, 1}, Shape{40, 8, 8, 1}, Shape{100, 96, 3, 2},
                                           Shape{33, 160, 8, 1}, Shape{96, 1536, 1, 4}, Shape{64, 1544, 2, 1},
                                           Shape{24, 3072, 5, 1}, Shape{17, 4000, 8, 3}, Shape{2000, 64, 8, 1}));

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

TEST_F(MatmulFewTest, PerLayerInputGatesTheRows) {
  const int64_t k = 256, n = 48, stride = 3 * k;
  const std::vector<uint16_t> w = RandomBf16(n * k, 5, 0.1f);
  const std::vector<float> x = RandomFloats(kFewRows * k, 6), p = RandomFloats(kFewRows * stride, 7);
  const DeviceArray<uint16_t> device_w(w);
  const DeviceArray<float> device_x(x), device_p(p);
  DeviceArray<float> y(kFewRows * n);
  MatmulFewArgs args;
  args.w = {device_w.data(), n};
  args.k = k;
  args.x = device_x.data();
  args.per_layer = device_p.data() + k;
  args.per_layer_stride = stride;
  args.y = y.data();
  Run(MultiplyFewPerLayer, args, 8);
  Rows input = RowsOf(x, 1, k);
  for (size_t r = 0; r < kFewRows; ++r) {
    for (size_t j = 0; j < k; ++j) input[r][j] = Gelu(input[r][j]) * p[r * stride + k + j];
  }
  ExpectRows(y.ToHost(), 1, Product(input, w, k), 8);
}

template <FewOutput kOutput>
void JoinAndMultiply(const char* what, gpuStream stream, const MatmulFewArgs& args) {
  JoinAndMultiplyFew(what, stream, kOutput, args);
}

class ResidualTest : public MatmulFewTest {
 protected:
  static constexpr int64_t kParts = 3;
  static constexpr float kEps = 1e-6f, kScale = 0.7f;

  void MakeInput(int64_t k) {
    x_ = RandomFloats(static_cast<size_t>(kParts * kFewRows * k), 8);
    hidden_ = RandomFloats(static_cast<size_t>(kFewRows * k), 9, 3.0f);
    post_ = RandomFloats(static_cast<size_t>(k), 10);
    pre_ = RandomFloats(static_cast<size_t>(k), 11);
    device_x_.emplace(x_);
    device_hidden_.emplace(hidden_);
    device_post_.emplace(post_);
    device_pre_.emplace(pre_);
    next_.emplace(hidden_.size());
    bad_.emplace(std::vector<int32_t>{0});
    stream_ = RowsOf(hidden_, 1, k);
    const Rows branch = RowsOf(x_, kParts, k);
    for (size_t r = 0; r < kFewRows; ++r) {
      const std::vector<double> normed = Normed(branch[r], post_, kEps);
      for (size_t j = 0; j < static_cast<size_t>(k); ++j) stream_[r][j] = (stream_[r][j] + normed[j]) * kScale;
    }
    args_ = {};
    args_.k = static_cast<int32_t>(k);
    args_.x = device_x_->data();
    args_.x_parts = kParts;
    args_.hidden = device_hidden_->data();
    args_.hidden_out = next_->data();
    args_.post_norm = device_post_->data();
    args_.pre_norm = device_pre_->data();
    args_.scale = kScale;
    args_.eps = kEps;
    args_.bad_place = bad_->data();
    args_.place = 5;
  }

  Rows NormedStream() const {
    Rows out;
    for (const auto& row : stream_) out.push_back(Normed(row, pre_, kEps));
    return out;
  }

  std::vector<float> x_, hidden_, post_, pre_;
  std::optional<DeviceArray<float>> device_x_, device_hidden_, device_post_, device_pre_, next_;
  std::optional<DeviceArray<int32_t>> bad_;
  Rows stream_;
  MatmulFewArgs args_;
};

TEST_F(ResidualTest, GatedProductOfTheNormedStream) {
  for (const int64_t k : {96, 776, 1536}) {
    MakeInput(k);
    const int64_t n = 20;
    const std::vector<uint16_t> w = RandomBf16(static_cast<size_t>(2 * n * k), 12, 0.05f);
    const DeviceArray<uint16_t> device_w(w);
    DeviceArray<float> y(kFewRows * n);
    args_.w = {device_w.data(), 2 * n};
    args_.y = y.data();
    Run(JoinAndMultiply<FewOutput::kGated>, args_, 7);
    const Rows product = Product(NormedStream(), w, k);
    Rows wanted(kFewRows, std::vector<double>(n));
    for (size_t r = 0; r < kFewRows; ++r) {
      for (size_t i = 0; i < n; ++i) wanted[r][i] = Gelu(product[r][i]) * product[r][i + n];
    }
    ExpectRows(y.ToHost(), 1, wanted, 7);
    ExpectRows(next_->ToHost(), 1, stream_, 7);
    EXPECT_EQ(bad_->ToHost()[0], 0);
  }
}

TEST_F(ResidualTest, StreamItselfIsTheInputWithoutNorm) {
  const int64_t k = 96, n = 32;
  MakeInput(k);
  const std::vector<uint16_t> w = RandomBf16(n * k, 13, 0.1f);
  const DeviceArray<uint16_t> device_w(w);
  DeviceArray<float> y(kFewRows * n);
  args_.w = {device_w.data(), n};
  args_.pre_norm = nullptr;
  args_.y = y.data();
  Run(JoinAndMultiply<FewOutput::kStore>, args_, 8);
  ExpectRows(y.ToHost(), 1, Product(stream_, w, k), 8);
}

TEST_F(ResidualTest, WithoutABranchTheStreamPasses) {
  const int64_t k = 64, n = 16;
  MakeInput(k);
  const std::vector<uint16_t> w = RandomBf16(n * k, 14, 0.1f);
  const DeviceArray<uint16_t> device_w(w);
  DeviceArray<float> y(kFewRows * n);
  args_.w = {device_w.data(), n};
  args_.post_norm = nullptr;
  args_.x = nullptr;
  args_.scale = 1.0f;
  args_.y = y.data();
  Run(JoinAndMultiply<FewOutput::kStore>, args_, 4);
  stream_ = RowsOf(hidden_, 1, k);
  ExpectRows(y.ToHost(), 1, Product(NormedStream(), w, k), 4);
}

TEST_F(ResidualTest, FirstPlaceThatIsNotFiniteIsKept) {
  const int64_t k = 64, n = 16;
  MakeInput(k);
  hidden_[70] = NAN;
  const DeviceArray<float> hidden(hidden_);
  const DeviceArray<uint16_t> device_w(RandomBf16(n * k, 15, 0.1f));
  DeviceArray<float> y(kFewRows * n);
  args_.hidden = hidden.data();
  args_.w = {device_w.data(), n};
  args_.y = y.data();
  Run(JoinAndMultiply<FewOutput::kStore>, args_, 1);
  EXPECT_EQ(bad_->ToHost()[0], 0);  // it is in row 1
  Run(JoinAndMultiply<FewOutput::kStore>, args_, 2);
  EXPECT_EQ(bad_->ToHost()[0], 5);
  args_.place = 6;
  Run(JoinAndMultiply<FewOutput::kStore>, args_, 2);
  EXPECT_EQ(bad_->ToHost()[0], 5);
}

TEST_F(ResidualTest, StreamThatIsTooWideIsRefused) {
  MakeInput(kFewResidualWidth + 8);
  EXPECT_THROW(Run(JoinAndMultiply<FewOutput::kStore>, args_, 1), Error);
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
  Rows wanted = Product(RowsOf(x, 1, k), w, k);
  for (auto& row : wanted) {
    for (double& v : row) v = 30 * std::tanh(v / 30);
  }
  ExpectRows(found, 1, wanted, 6);
  const std::vector<int32_t> chosen = ids.ToHost();
  EXPECT_EQ(chosen[0], 300);
  for (size_t r = 0; r < 6; ++r) {
    const auto begin = found.begin() + static_cast<ptrdiff_t>(r * n);
    EXPECT_EQ(chosen[r], std::max_element(begin, begin + n) - begin) << "row " << r;
  }
  EXPECT_EQ(chosen[6], -1);  // 0xff: not written
}

// The same bits for a row alone and among others, at another place of the batch.
TEST_F(ResidualTest, RowsDoNotDependOnEachOther) {
  const int64_t k = 160, n = 64;
  MakeInput(k);
  const DeviceArray<uint16_t> device_w(RandomBf16(n * k, 18, 0.1f));
  DeviceArray<float> y(kFewRows * n);
  args_.w = {device_w.data(), n};
  args_.y = y.data();
  Run(JoinAndMultiply<FewOutput::kStore>, args_, 8);
  const std::vector<float> together = y.ToHost();
  for (size_t r = 0; r < kFewRows; ++r) {
    const auto only = [&](const std::vector<float>& all, size_t parts) {
      std::vector<float> out(all.size(), NAN);
      for (size_t p = 0; p < parts; ++p) {
        std::copy_n(all.begin() + static_cast<ptrdiff_t>((p * kFewRows + r) * k), k,
                    out.begin() + static_cast<ptrdiff_t>(p * kFewRows * k));
      }
      return out;
    };
    const DeviceArray<float> x(only(x_, kParts)), hidden(only(hidden_, 1));
    MatmulFewArgs alone = args_;
    alone.x = x.data();
    alone.hidden = hidden.data();
    Run(JoinAndMultiply<FewOutput::kStore>, alone, 1);
    const std::vector<float> found = y.ToHost();
    EXPECT_TRUE(std::equal(found.begin(), found.begin() + n, together.begin() + static_cast<ptrdiff_t>(r * n))) << r;
  }
}

}  // namespace
}  // namespace lapidary::gpu
