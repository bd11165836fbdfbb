#pragma once

namespace lapidary::gpu {

// A kernel that does nothing, built for the same architectures as all others: whether the device can load it tells
// whether this build has machine code for the device.
const void* ProbeKernel();

}  // namespace lapidary::gpu
