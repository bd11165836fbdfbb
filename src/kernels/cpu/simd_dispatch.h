#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lapidary::cpu {

// The instruction set that the kernels run on, e.g. "AVX3".
std::string SimdTargetName();

// Every instruction set that is both compiled in and supported here, best first.
std::vector<int64_t> SimdTargets();

// Makes all kernels run on `target`, one of SimdTargets(); 0 goes back to the best. For tests; no kernel may be
// running.
void UseSimdTarget(int64_t target);

}  // namespace lapidary::cpu
