#include <gtest/gtest.h>

#include "base/error.h"
#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class ClusterTest : public GpuTest {};

TEST_F(ClusterTest, BlocksReadEachOthersSharedMemory) {
  const DeviceArray<uint32_t> out(3 * 4 * 32);
  if (FindDevice(nullptr)->compute_major < 9) {
    EXPECT_THROW(RunCluster(gpuStream{}, out.data(), 3), Error);
    return;
  }
  RunCluster(gpuStream{}, out.data(), 3);
  const std::vector<uint32_t> result = out.ToHost();
  for (uint32_t i = 0; i < result.size(); ++i) {
    const uint32_t block = i / 32;
    EXPECT_EQ(result[i], (block / 4 * 4 + (block + 1) % 4) * 100 + i % 32);
  }
}

}  // namespace
}  // namespace lapidary::gpu::testing
