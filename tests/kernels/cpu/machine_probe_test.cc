#include "kernels/cpu/machine_probe.h"

#include <gtest/gtest.h>

namespace lapidary::cpu {
namespace {

// Any machine this runs on lies between a slow phone and the largest server.
TEST(MachineProbe, RatesArePlausible) {
  ThreadPool pool(1);
  const double bandwidth = MeasureReadBandwidth(pool);
  EXPECT_GT(bandwidth, 1e7);
  EXPECT_LT(bandwidth, 1e13);
  const double peak = MeasureFmaPeak(pool);
  EXPECT_GT(peak, 1e7);
  EXPECT_LT(peak, 1e13);
}

}  // namespace
}  // namespace lapidary::cpu
