#include <gtest/gtest.h>

#include <bit>

#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class MmaTest : public GpuTest {};

// Small integers: exact in bfloat16, and sums of their products in float32.
uint16_t Bf16(int value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16); }

TEST_F(MmaTest, MultipliesAndAdds) {
  std::vector<int> a(256), b(128), c(128);
  for (int i = 0; i < 256; ++i) a[static_cast<size_t>(i)] = i * 31 % 23 - 11;
  for (int i = 0; i < 128; ++i) b[static_cast<size_t>(i)] = i * 17 % 19 - 9;
  for (int i = 0; i < 128; ++i) c[static_cast<size_t>(i)] = i * 7 - 300;
  std::vector<uint16_t> a_bits, b_bits;
  for (const int value : a) a_bits.push_back(Bf16(value));
  for (const int value : b) b_bits.push_back(Bf16(value));
  const DeviceArray<uint16_t> a_device(a_bits), b_device(b_bits);
  for (const bool transposed : {false, true}) {
    const DeviceArray<float> d(std::vector<float>(c.begin(), c.end()));
    RunMma(gpuStream{}, a_device.data(), b_device.data(), d.data(), transposed);
    const std::vector<float> result = d.ToHost();
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < 8; ++n) {
        int sum = c[m * 8 + n];
        for (size_t k = 0; k < 16; ++k) sum += a[m * 16 + k] * b[n * 16 + k];
        EXPECT_EQ(result[m * 8 + n], static_cast<float>(sum)) << m << " " << n << (transposed ? " transposed" : "");
      }
    }
  }
}

TEST_F(MmaTest, LoadsMatrices) {
  std::vector<uint16_t> rows(256);  // four matrices of [8, 8]
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i * 3 + 1);
  const DeviceArray<uint16_t> device(rows);
  for (const bool transposed : {false, true}) {
    const DeviceArray<uint32_t> out(128);
    RunLoadMatrix(gpuStream{}, device.data(), out.data(), transposed);
    const std::vector<uint32_t> result = out.ToHost();
    for (size_t lane = 0; lane < 32; ++lane) {
      for (size_t matrix = 0; matrix < 4; ++matrix) {
        const size_t row = lane / 4, column = 2 * (lane % 4);
        const auto at = [&](size_t r, size_t c) -> uint32_t {
          return rows[matrix * 64 + (transposed ? c * 8 + r : r * 8 + c)];
        };
        EXPECT_EQ(result[lane * 4 + matrix], at(row, column) | at(row, column + 1) << 16) << lane << " " << matrix;
      }
    }
  }
}

}  // namespace
}  // namespace lapidary::gpu::testing
