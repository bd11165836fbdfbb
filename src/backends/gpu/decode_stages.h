#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"

namespace lapidary::gpu {

// Where the time of a decode step goes that is one launch, from its marks [blocks, layers + 1, kDecodeMarks]
// (kernels/gpu/decode_step.h), 0 where a block did not come by: each stage with its time in all layers, a mean over the
// blocks that have it. Blocks are at different stages at the same time, so the sum is not quite the launch's.
std::vector<KernelTime> DecodeStages(std::span<const int64_t> marks, int blocks, int layers);

}  // namespace lapidary::gpu
