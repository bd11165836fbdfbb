#include "kernels/gpu/device_probe.h"

#include <gtest/gtest.h>

namespace lapidary::gpu {
namespace {

TEST(DeviceProbe, IsAKernel) { EXPECT_NE(ProbeKernel(), nullptr); }

}  // namespace
}  // namespace lapidary::gpu
