#pragma once

#include <cstdint>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// A device buffer that grows and then stays where it is. T: a plain type.
template <typename T>
class Scratch {
 public:
  // Room for `count` values; what was in it is lost when it grows. True when the address changed.
  bool Reserve(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes <= memory_.size_bytes()) return false;
    memory_ = DeviceMemory();
    memory_ = DeviceMemory(bytes);
    return true;
  }

  T* data() const { return static_cast<T*>(memory_.data()); }
  int64_t size() const { return static_cast<int64_t>(memory_.size_bytes() / sizeof(T)); }

 private:
  DeviceMemory memory_;
};

}  // namespace lapidary::gpu
