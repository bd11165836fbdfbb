#include "kernels/cpu/matmul.h"

#include <gmock/gmock.h>

#include <cstring>
#include <tuple>

#include "kernels/reference/reference.h"
#include "simd_test.h"

namespace lapidary::cpu {
namespace {

class MatmulTest : public SimdTest {};
LAPIDARY_SIMD_SUITE(MatmulTest);

// float16 bits of a value that float16 holds exactly; normal numbers only.
uint16_t ExactF16Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value == 0.0f) return static_cast<uint16_t>(bits >> 16);
  const int exponent = static_cast<int>((bits >> 23) & 0xff) - 127 + 15;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000) | (static_cast<uint32_t>(exponent) << 10) |
                               ((bits >> 13) & 0x3ff));
}

struct Stored {
  std::vector<uint16_t> half;
  std::vector<float> full;
  WeightMatrix matrix;
};

Stored Store(const std::vector<float>& w, DType dtype, size_t outputs, size_t cols) {
  Stored stored;
  if (dtype == DType::kBF16) stored.half = ToBF16Bits(w);
  if (dtype == DType::kF16) {
    for (float value : w) stored.half.push_back(ExactF16Bits(value));
  }
  if (dtype == DType::kF32) stored.full = w;
  stored.matrix = {dtype == DType::kF32 ? static_cast<const void*>(stored.full.data()) : stored.half.data(), dtype,
                   static_cast<int64_t>(outputs), static_cast<int64_t>(cols)};
  return stored;
}

std::vector<float> Multiply(ThreadPool& pool, const std::vector<float>& x, const WeightMatrix& weight, size_t rows) {
  MatmulScratch scratch;
  std::vector<float> out(rows * static_cast<size_t>(weight.rows), NAN);
  const MatmulTarget target{weight, out.data(), weight.rows};
  Matmul(pool, scratch, x.data(), static_cast<int64_t>(rows), weight.cols, {&target, 1});
  return out;
}

// Sums of n products rounded in float32 in blocks of lanes: far below n * 2^-24; 1e-5 holds for every size here.
constexpr double kTolerance = 1e-5;

TEST_P(MatmulTest, EveryRemainderAgreesWithTheReference) {
  ThreadPool pool(2);
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (size_t cols : {1, 2, 15, 31, 32, 33, 48, 63, 64, 96, 160, 1025}) {
      for (size_t outputs : {1, 5, 6, 7, 13}) {
        for (size_t rows : {1, 2, 3, 4, 5, 8, 9}) {
          const std::vector<float> x = Random(rows * cols);
          std::vector<float> w = RandomExact(outputs * cols);
          for (float& value : w) value = std::abs(value) < 1e-3f ? 0.5f : value;  // stays normal in float16
          const Stored stored = Store(w, dtype, outputs, cols);
          const std::vector<float> found = Multiply(pool, x, stored.matrix, rows);
          EXPECT_LE(RelativeError(found.data(), reference::Matmul(x, w, rows, outputs, cols)), kTolerance)
              << NameOf(dtype) << " " << rows << " x " << outputs << " x " << cols;
        }
      }
    }
  }
}

TEST_P(MatmulTest, RealShapesAgreeWithTheReference) {
  ThreadPool pool(2);
  for (const auto& [rows, outputs, cols] : {std::tuple<size_t, size_t, size_t>{1, 70, 12288},
                                            {3, 50, 6144},
                                            {17, 30, 4096},
                                            {40, 256, 1536},
                                            {9, 20, 256}}) {
    const std::vector<float> x = Random(rows * cols), w = RandomExact(outputs * cols);
    const Stored stored = Store(w, DType::kBF16, outputs, cols);
    const std::vector<float> found = Multiply(pool, x, stored.matrix, rows);
    EXPECT_LE(RelativeError(found.data(), reference::Matmul(x, w, rows, outputs, cols)), kTolerance)
        << rows << " x " << outputs << " x " << cols;
  }
}

TEST_P(MatmulTest, BitsDependOnNeitherRowsNorThreads) {
  constexpr size_t kRows = 13, kOutputs = 203;
  for (size_t cols : {256, 1536, 2048, 6144, 1234}) {
    const std::vector<float> x = Random(kRows * cols), w = RandomExact(kOutputs * cols);
    const Stored stored = Store(w, DType::kBF16, kOutputs, cols);
    ThreadPool one(1);
    const std::vector<float> together = Multiply(one, x, stored.matrix, kRows);
    for (int threads : {2, 3}) {
      ThreadPool pool(threads);
      EXPECT_THAT(Multiply(pool, x, stored.matrix, kRows), testing::ElementsAreArray(together)) << threads;
    }
    ThreadPool pool(2);
    for (size_t r = 0; r < kRows; ++r) {
      const std::vector<float> row(x.begin() + static_cast<ptrdiff_t>(r * cols),
                                   x.begin() + static_cast<ptrdiff_t>((r + 1) * cols));
      const std::vector<float> alone = Multiply(pool, row, stored.matrix, 1);
      EXPECT_EQ(std::memcmp(alone.data(), together.data() + r * kOutputs, kOutputs * sizeof(float)), 0)
          << r << " of " << cols;
    }
  }
}

// Threads that are done take over from others: with more threads than cores that happens all the time.
TEST_P(MatmulTest, BitsDoNotDependOnWhichThreadTakesAnOutput) {
  constexpr size_t kOutputs = 5000, kCols = 320;
  const std::vector<float> w = RandomExact(kOutputs * kCols);
  const Stored stored = Store(w, DType::kBF16, kOutputs, kCols);
  ThreadPool one(1), seven(7);
  for (size_t rows : {1, 2, 4, 8}) {
    const std::vector<float> x = Random(rows * kCols);
    const std::vector<float> alone = Multiply(one, x, stored.matrix, rows);
    for (int round = 0; round < 5; ++round) {
      EXPECT_THAT(Multiply(seven, x, stored.matrix, rows), testing::ElementsAreArray(alone)) << rows;
    }
  }
}

TEST_P(MatmulTest, SeveralTargetsAndStrides) {
  ThreadPool pool(2);
  constexpr size_t kRows = 3, kCols = 96;
  const std::vector<float> x = Random(kRows * kCols), w1 = RandomExact(10 * kCols), w2 = RandomExact(7 * kCols);
  const Stored s1 = Store(w1, DType::kBF16, 10, kCols), s2 = Store(w2, DType::kBF16, 7, kCols);
  std::vector<float> out(kRows * 20, -1.0f);
  const MatmulTarget targets[2] = {{s1.matrix, out.data(), 20}, {s2.matrix, out.data() + 10, 20}};
  MatmulScratch scratch;
  Matmul(pool, scratch, x.data(), kRows, kCols, targets);
  const std::vector<double> r1 = reference::Matmul(x, w1, kRows, 10, kCols),
                            r2 = reference::Matmul(x, w2, kRows, 7, kCols);
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t n = 0; n < 10; ++n) EXPECT_NEAR(out[r * 20 + n], r1[r * 10 + n], 1e-4);
    for (size_t n = 0; n < 7; ++n) EXPECT_NEAR(out[r * 20 + 10 + n], r2[r * 7 + n], 1e-4);
    for (size_t n = 17; n < 20; ++n) EXPECT_EQ(out[r * 20 + n], -1.0f);
  }
}

// Weights of a mapped file lie at any even address, and nothing behind them may be read.
TEST_P(MatmulTest, UnalignedWeightsAtTheEndOfTheirMemory) {
  ThreadPool pool(1);
  constexpr size_t kOutputs = 7, kCols = 45;
  const std::vector<float> x = Random(kCols), w = RandomExact(kOutputs * kCols);
  const std::vector<uint16_t> bits = ToBF16Bits(w);
  std::vector<uint16_t> memory(1 + bits.size());
  std::copy(bits.begin(), bits.end(), memory.begin() + 1);
  memory.shrink_to_fit();
  const std::vector<float> found = Multiply(pool, x, {memory.data() + 1, DType::kBF16, kOutputs, kCols}, 1);
  EXPECT_LE(RelativeError(found.data(), reference::Matmul(x, w, 1, kOutputs, kCols)), kTolerance);
}

TEST_P(MatmulTest, ANaNStaysInItsRowAndOutput) {
  ThreadPool pool(1);
  std::vector<float> x = Random(4 * 64);
  x[64] = NAN;  // row 1
  std::vector<float> w = RandomExact(6 * 64);
  w[2 * 64 + 5] = INFINITY;  // output 2
  const Stored stored = Store(w, DType::kBF16, 6, 64);
  const std::vector<float> found = Multiply(pool, x, stored.matrix, 4);
  for (size_t r = 0; r < 4; ++r) {
    for (size_t n = 0; n < 6; ++n) EXPECT_EQ(std::isfinite(found[r * 6 + n]), r != 1 && n != 2) << r << " " << n;
  }
}

}  // namespace
}  // namespace lapidary::cpu
