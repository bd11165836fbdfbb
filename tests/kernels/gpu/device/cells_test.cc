#include <gtest/gtest.h>

#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

constexpr int kBlocks = 4, kCells = 3 * kBlocks * 64;

class CellsTest : public GpuTest {};

TEST_F(CellsTest, BlocksHandEachOtherValues) {
  const DeviceArray<float> cells(kCells), out(kCells);
  const DeviceArray<uint32_t> stuck(std::vector<uint32_t>{0});
  RunExchange(gpuStream{}, cells.data(), out.data(), stuck.data(), kBlocks, true);
  const std::vector<float> sums = out.ToHost();
  for (int i = 0; i < kCells; ++i) {
    const int round = i / (kBlocks * 64), thread = i % 64;
    // Block b publishes 64 b + thread in the first round, then thread alone.
    const int first = 64 * (kBlocks * (kBlocks - 1) / 2) + kBlocks * thread;
    const int later = kBlocks * thread;
    EXPECT_EQ(sums[static_cast<size_t>(i)], static_cast<float>(round == 0 ? first : later)) << i;
  }
  EXPECT_EQ(stuck.ToHost()[0], 0u);
}

// A block that waits in vain says where, and ends.
TEST_F(CellsTest, WaitsAreBounded) {
  const DeviceArray<float> cells(kCells), out(kCells);
  const DeviceArray<uint32_t> stuck(std::vector<uint32_t>{0});
  RunExchange(gpuStream{}, cells.data(), out.data(), stuck.data(), kBlocks, false);
  EXPECT_EQ(stuck.ToHost()[0], 3u);
}

}  // namespace
}  // namespace lapidary::gpu::testing
