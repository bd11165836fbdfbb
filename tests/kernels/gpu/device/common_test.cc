#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class CommonTest : public GpuTest {};

TEST_F(CommonTest, WarpsMeetAtNamedBarriers) {
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), 1.0f);
  const DeviceArray<float> in(values), out(64);
  RunNamedBarrier(gpuStream{}, in.data(), out.data());
  EXPECT_EQ(out.ToHost(), std::vector<float>(64, 64 * 65 / 2));
}

TEST_F(CommonTest, AtomicsCountEveryThread) {
  const uint32_t blocks = 37;
  const DeviceArray<uint32_t> counters(std::vector<uint32_t>(4, 0));
  const DeviceArray<uint64_t> largest(std::vector<uint64_t>(1, 0));
  RunAtomics(gpuStream{}, counters.data(), largest.data(), blocks);
  EXPECT_EQ(counters.ToHost(), (std::vector<uint32_t>{blocks * 64, 0u - 2 * blocks * 64, blocks, blocks * 64}));
  uint64_t wanted = 0;
  for (uint64_t i = 0; i < blocks * 64; ++i) wanted = std::max(wanted, i * 7919 % 1009 << 32 | i);
  EXPECT_EQ(largest.ToHost()[0], wanted);
}

TEST_F(CommonTest, LoadsSixteenBytes) {
  std::vector<uint32_t> values(128);
  std::iota(values.begin(), values.end(), 5u);
  const DeviceArray<uint32_t> in(values), out(128);
  RunLoad(gpuStream{}, in.data(), out.data());
  const std::vector<uint32_t> result = out.ToHost();
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(result[i], values[i / 4 * 4 + 3 - i % 4]);
}

}  // namespace
}  // namespace lapidary::gpu::testing
