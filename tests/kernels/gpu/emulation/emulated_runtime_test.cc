#include <gmock/gmock.h>

#include "base/error.h"
#include "kernels/gpu/emulation/emulated_device.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {
namespace {

using emulation::Device;
using emulation::EmulatedDevice;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EmulatedRuntime, MemoryIsCountedAndStartsPoisoned) {
  const EmulatedDevice before = Device();
  Device().memory_bytes = 10000;
  Device().multiprocessors = 3;
  EXPECT_EQ(FindDevice(nullptr)->multiprocessors, 3);
  {
    const DeviceMemory memory(6000);
    EXPECT_EQ(static_cast<const unsigned char*>(memory.data())[5999], 0xff);
    EXPECT_EQ(FindDevice(nullptr)->free_bytes, 4000);
    EXPECT_THAT(ErrorOf([] { DeviceMemory more(4001); }), AllOf(HasSubstr("wanted 4001"), HasSubstr("4000 of 10000")));
    const DeviceMemory rest(4000);
  }
  EXPECT_EQ(FindDevice(nullptr)->free_bytes, 10000);
  Device() = before;
}

TEST(EmulatedRuntime, NothingWaitsWhileAGraphIsRecorded) {
  const Stream stream;
  EXPECT_THAT(ErrorOf([&] { Graph::Capture(stream.get(), [&] { Synchronize(stream.get()); }); }),
              HasSubstr("recording"));
  EXPECT_THAT(ErrorOf([&] { Graph::Capture(gpuStream{}, [] {}); }), HasSubstr("a stream of its own"));
  Synchronize(stream.get());
}

}  // namespace
}  // namespace lapidary::gpu
