#include "kernels/gpu/matmul_batch.h"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>

#include "device_rows.h"
#include "kernels/reference/reference.h"

namespace lapidary::gpu::testing {
namespace {

struct Case {
  size_t rows, outputs, cols;
  int terms, splits;
};

class MatmulBatchTest : public GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  // x, its terms [terms, rows, cols], and what they add up to.
  struct Rows {
    std::vector<uint16_t> terms;
    std::vector<float> sum;
  };
  static Rows RowsInTerms(size_t count, int terms) {
    std::vector<float> rest = RandomRows(count);
    Rows rows{{}, std::vector<float>(count)};
    for (int t = 0; t < terms; ++t) {
      const std::vector<uint16_t> bits = ToBf16Bits(rest);
      const std::vector<float> values = FromBf16Bits(bits);
      rows.terms.insert(rows.terms.end(), bits.begin(), bits.end());
      for (size_t i = 0; i < count; ++i) {
        rest[i] -= values[i];
        rows.sum[i] += values[i];
      }
    }
    return rows;
  }

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const Case& c = GetParam();
    x_ = RowsInTerms(c.rows * c.cols, c.terms);
    w_ = ToBf16Bits(RandomRows(c.outputs * c.cols, 0.2f, 2));
    device_x_.emplace(x_.terms);
    device_w_.emplace(w_);
    args_ = {
        static_cast<int32_t>(c.rows), c.terms, device_x_->data(), device_w_->data(), static_cast<int32_t>(c.outputs),
        static_cast<int32_t>(c.cols)};
    wanted_ = reference::Matmul(x_.sum, FromBf16Bits(w_), c.rows, c.outputs, c.cols);
  }

  Rows x_;
  std::vector<uint16_t> w_;
  std::optional<DeviceArray<uint16_t>> device_x_, device_w_;
  MatmulBatchArgs args_;
  std::vector<double> wanted_;
};

TEST_P(MatmulBatchTest, PartsAddUpToTheProduct) {
  const Case& c = GetParam();
  const size_t size = c.rows * c.outputs;
  // What lies behind the product is not touched.
  const DeviceArray<float> y(std::vector<float>(static_cast<size_t>(c.splits) * size + 64, 7.0f));
  MatmulBatch("test", {}, args_, c.splits, 0, y.data());
  const std::vector<float> parts = y.ToHost();
  std::vector<float> sum(size);
  for (size_t i = 0; i < static_cast<size_t>(c.splits) * size; ++i) sum[i % size] += parts[i];
  EXPECT_LE(RelativeError(sum, wanted_), c.terms == 3 ? 2e-6 : 1e-6);
  for (size_t i = parts.size() - 64; i < parts.size(); ++i) ASSERT_EQ(parts[i], 7.0f);
}

TEST_P(MatmulBatchTest, SoftcapComesOnTop) {
  const Case& c = GetParam();
  const DeviceArray<float> y(c.rows * c.outputs);
  MatmulBatch("test", {}, args_, 1, 3.0f, y.data());
  std::vector<double> wanted;
  for (const double value : wanted_) wanted.push_back(3.0 * std::tanh(value / 3.0));
  // The product's error, against what the cap leaves of it: tensor cores drop bits when they add.
  EXPECT_LE(RelativeError(y.ToHost(), wanted), 2e-5);
}

TEST_P(MatmulBatchTest, GatesTheSecondHalfByTheFirst) {
  const Case& c = GetParam();
  const size_t half = c.outputs / 2;
  const DeviceArray<uint16_t> hi(c.rows * half), lo(c.rows * half), third(c.rows * half);
  if (c.terms == 3) {
    MatmulBatchGated("test", {}, args_, {nullptr, hi.data(), lo.data(), third.data()});
  } else {
    MatmulBatchGated("test", {}, args_, {nullptr, hi.data()});
  }
  std::vector<double> wanted(c.rows * half);
  for (size_t r = 0; r < c.rows; ++r) {
    for (size_t i = 0; i < half; ++i) {
      const double* product = wanted_.data() + r * c.outputs + i;
      wanted[r * half + i] = reference::GeluTanh(static_cast<float>(product[0])) * product[half];
    }
  }
  std::vector<float> found = FromBf16Bits(hi.ToHost());
  if (c.terms == 3) {
    const std::vector<float> second = FromBf16Bits(lo.ToHost()), last = FromBf16Bits(third.ToHost());
    for (size_t i = 0; i < found.size(); ++i) found[i] += second[i] + last[i];
  }
  EXPECT_LE(RelativeError(found, wanted), c.terms == 3 ? 1e-5 : 0x1p-8);
}

// Every size of tile; outputs, columns and rows that fill none of them; one chunk and more than the ring holds.
INSTANTIATE_TEST_SUITE_P(, MatmulBatchTest,
                         ::testing::Values(Case{9, 64, 128, 1, 1}, Case{16, 80, 1000, 3, 3}, Case{17, 144, 64, 1, 1},
                                           Case{32, 48, 520, 3, 4}, Case{33, 96, 456, 1, 2}, Case{64, 80, 72, 3, 1},
                                           Case{65, 272, 200, 1, 2}, Case{130, 32, 392, 3, 2}, Case{16, 16, 96, 3, 1},
                                           Case{9, 320, 96, 3, 1}, Case{16, 96, 160, 3, 1}));

TEST(MatmulBatchSplits, FillTheDeviceButNoPartIsShort) {
  EXPECT_EQ(MatmulBatchSplits(24576, 1536, 132), 1);
  EXPECT_EQ(MatmulBatchSplits(2560, 1536, 132), 6);
  EXPECT_EQ(MatmulBatchSplits(1536, 12288, 132), 11);
  EXPECT_EQ(MatmulBatchSplits(256, 1536, 132), 12);
  EXPECT_EQ(MatmulBatchSplits(1536, 256, 132), 2);
  EXPECT_EQ(MatmulBatchSplits(64, 8, 132), 1);
}

}  // namespace
}  // namespace lapidary::gpu::testing
