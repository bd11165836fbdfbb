// The float32 vector of the target that is being compiled.

#if defined(LAPIDARY_KERNELS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAPIDARY_KERNELS_CPU_VECTOR_INL_H_
#undef LAPIDARY_KERNELS_CPU_VECTOR_INL_H_
#else
#define LAPIDARY_KERNELS_CPU_VECTOR_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#endif  // LAPIDARY_KERNELS_CPU_VECTOR_INL_H_
