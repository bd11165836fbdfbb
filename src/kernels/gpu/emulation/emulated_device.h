#pragma once

#include <cstdint>

// The device that emulation pretends to be: of compute capability 9.0. Tests may change it before they use it.
namespace lapidary::gpu::emulation {

struct EmulatedDevice {
  int multiprocessors = 132;
  int64_t memory_bytes = int64_t{2} << 30;
  int64_t l2_bytes = 256 << 10;  // small, as some work is measured in caches
  int64_t shared_bytes_per_block = 227 << 10;
};
EmulatedDevice& Device();

}  // namespace lapidary::gpu::emulation
