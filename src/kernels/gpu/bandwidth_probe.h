#pragma once

namespace lapidary::gpu {

// GB/s (10^9 bytes a second) that the device reads from its memory with 16-byte loads, the best of several passes over
// 64 times what its cache holds. Takes that much device memory for a moment, or half of what is free. Throws Error
// kOutOfMemory, kDevice.
double MeasureReadBandwidth();

}  // namespace lapidary::gpu
