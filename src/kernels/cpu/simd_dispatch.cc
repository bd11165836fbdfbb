#include "kernels/cpu/simd_dispatch.h"

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_dispatch.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, comes before highway.h

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {

int64_t Target() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapidary::cpu {

HWY_EXPORT(Target);

std::string SimdTargetName() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(Target)()); }

// Highway numbers better targets lower and lists them in that order.
std::vector<int64_t> SimdTargets() { return hwy::SupportedAndGeneratedTargets(); }

void UseSimdTarget(int64_t target) { hwy::SetSupportedTargetsForTest(target); }

}  // namespace lapidary::cpu
#endif  // HWY_ONCE
