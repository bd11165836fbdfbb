#pragma once

#include <functional>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu::emulation {

// Runs `thread` once for each thread of the grid: blocks one after the other, the blocks of a cluster together. Throws
// kDevice, naming `what` and the block, for a deadlock, misuse of a helper, or shared memory beyond the limit.
void RunGrid(const char* what, const std::function<void()>& thread, const LaunchShape& shape);

}  // namespace lapidary::gpu::emulation
