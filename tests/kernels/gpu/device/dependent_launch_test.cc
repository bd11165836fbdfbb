#include <gtest/gtest.h>

#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class DependentLaunchTest : public GpuTest {};

TEST_F(DependentLaunchTest, EachKernelSeesWhatTheOneBeforeWrote) {
  const int count = 100000;
  const Stream stream;
  const DeviceArray<float> a(std::vector<float>(count, 1.0f)), b(static_cast<size_t>(count));
  for (int i = 0; i < 10; ++i) {
    RunAdd(stream.get(), a.data(), 1.0f, b.data(), count);
    RunAdd(stream.get(), b.data(), 2.0f, a.data(), count);
  }
  EXPECT_EQ(a.ToHost(stream.get()), std::vector<float>(count, 31.0f));
}

}  // namespace
}  // namespace lapidary::gpu::testing
