#include "kernels/cpu/simd_dispatch.h"

#include <gtest/gtest.h>

namespace lapidary::cpu {
namespace {

TEST(SimdDispatchTest, EachTargetCanBeChosen) {
  const std::string best = SimdTargetName();
  EXPECT_FALSE(SimdTargets().empty());
  for (int64_t target : SimdTargets()) {
    UseSimdTarget(target);
    EXPECT_FALSE(SimdTargetName().empty());
  }
  UseSimdTarget(SimdTargets().back());
  EXPECT_EQ(SimdTargets().size(), 1u);
  UseSimdTarget(0);
  EXPECT_EQ(SimdTargetName(), best);
}

}  // namespace
}  // namespace lapidary::cpu
