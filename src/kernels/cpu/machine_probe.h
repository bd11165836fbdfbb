#pragma once

#include "base/thread_pool.h"

namespace lapidary::cpu {

// What all threads of the pool reach together here and now, each the median of several runs. About a second each.

// Bytes/s of reading a buffer far larger than the caches once from end to end. Throws Error kOutOfMemory.
double MeasureReadBandwidth(ThreadPool& pool);

// Float32 operations/s of independent fused multiply-adds in registers, at the widest vectors dispatch chooses.
double MeasureFmaPeak(ThreadPool& pool);

}  // namespace lapidary::cpu
