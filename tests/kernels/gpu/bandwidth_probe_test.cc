#include "kernels/gpu/bandwidth_probe.h"

#include <gtest/gtest.h>

#include "device_array.h"

namespace lapidary::gpu {
namespace {

class BandwidthProbeTest : public testing::GpuTest {};

TEST_F(BandwidthProbeTest, FindsARate) { EXPECT_GT(MeasureReadBandwidth(), 0.0); }

}  // namespace
}  // namespace lapidary::gpu
