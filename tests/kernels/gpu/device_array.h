#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu::testing {

// A test that runs on the device, or says skipped where there is none.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!FindDevice(&why)) GTEST_SKIP() << why;
  }
};

// A vector's copy in device memory.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()), memory_(values.size() * sizeof(T)) {
    CopyToDevice(memory_.data(), values.data(), size_ * sizeof(T), gpuStream{});
    Synchronize(gpuStream{});
  }
  // All bytes 0xff: not a number, or -1.
  explicit DeviceArray(size_t size) : size_(size), memory_(size * sizeof(T)) {
    Fill(memory_.data(), 0xff, size * sizeof(T), gpuStream{});
    Synchronize(gpuStream{});
  }

  T* data() const { return static_cast<T*>(memory_.data()); }
  size_t size() const { return size_; }
  // Waits for `stream` first.
  std::vector<T> ToHost(gpuStream stream = gpuStream{}) const {
    std::vector<T> values(size_);
    CopyToHost(values.data(), data(), size_ * sizeof(T), stream);
    Synchronize(stream);
    return values;
  }

 private:
  size_t size_;
  DeviceMemory memory_;
};

}  // namespace lapidary::gpu::testing
