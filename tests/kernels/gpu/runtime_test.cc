#include "kernels/gpu/runtime.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class RuntimeTest : public GpuTest {};

template <typename Work>
std::string ErrorOf(ErrorKind kind, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(FindDevice, TellsTheDeviceOrWhyThereIsNone) {
  std::string why;
  const std::optional<DeviceInfo> device = FindDevice(&why);
  EXPECT_EQ(device.has_value(), FindDevice(nullptr).has_value());
  if (!device) {
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(why.find('\n'), std::string::npos);
    GTEST_SKIP() << why;
  }
  EXPECT_FALSE(device->name.empty());
  EXPECT_GE(device->compute_major, 8);
  EXPECT_GT(device->multiprocessors, 0);
  EXPECT_GT(device->memory_bytes, 0);
  EXPECT_LE(device->free_bytes, device->memory_bytes);
  EXPECT_GT(device->l2_bytes, 0);
  EXPECT_GE(device->shared_bytes_per_block, 48 << 10);
}

TEST_F(RuntimeTest, MemoryIsAlignedMovesAndMayBeEmpty) {
  DeviceMemory memory(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0u);
  EXPECT_EQ(memory.size_bytes(), 1000u);
  void* data = memory.data();
  DeviceMemory other(std::move(memory));
  EXPECT_EQ(other.data(), data);
  DeviceMemory third;
  third = std::move(other);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(DeviceMemory(0).data(), nullptr);
  EXPECT_EQ(PinnedMemory(0).data(), nullptr);
}

TEST_F(RuntimeTest, TooMuchMemoryIsAnErrorThatSaysHowMuch) {
  const size_t wanted = size_t{1} << 46;
  const std::string message = ErrorOf(ErrorKind::kOutOfMemory, [&] { DeviceMemory memory(wanted); });
  EXPECT_NE(message.find(std::to_string(wanted)), std::string::npos) << message;
  EXPECT_NE(message.find("free"), std::string::npos) << message;
  // The device is still good.
  const DeviceArray<int> array(std::vector<int>{1, 2, 3});
  EXPECT_EQ(array.ToHost(), (std::vector<int>{1, 2, 3}));
}

TEST_F(RuntimeTest, CopiesAndFillsAlongAStream) {
  const Stream stream;
  PinnedMemory pinned(4096);
  auto* host = static_cast<unsigned char*>(pinned.data());
  for (size_t i = 0; i < 4096; ++i) host[i] = static_cast<unsigned char>(i * 7);
  const DeviceMemory a(4096), b(4096);
  CopyToDevice(a.data(), host, 4096, stream.get());
  CopyOnDevice(b.data(), a.data(), 4096, stream.get());
  Fill(b.data(), 0x5a, 100, stream.get());
  PinnedMemory back(4096);
  CopyToHost(back.data(), b.data(), 4096, stream.get());
  Synchronize(stream.get());
  const auto* result = static_cast<const unsigned char*>(back.data());
  for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(result[i], i < 100 ? 0x5a : host[i]) << i;
}

TEST_F(RuntimeTest, EventsOrderStreamsAndMeasure) {
  const Stream first, second;
  Event begin, end;
  const DeviceArray<float> x(std::vector<float>(1000, 1.0f)), y(size_t{1000}), z(size_t{1000});
  begin.Record(first.get());
  RunAdd(first.get(), x.data(), 1.0f, y.data(), 1000);
  end.Record(first.get());
  end.MakeWait(second.get());
  RunAdd(second.get(), y.data(), 1.0f, z.data(), 1000);
  EXPECT_EQ(z.ToHost(second.get()), std::vector<float>(1000, 3.0f));
  end.Synchronize();
  EXPECT_GE(end.ElapsedMs(begin), 0.0);
}

TEST_F(RuntimeTest, ALaunchThatCannotBeNamesItsLauncher) {
  const DeviceArray<float> x(size_t{2000}), out(size_t{2000});
  const std::string message =
      ErrorOf(ErrorKind::kDevice, [&] { RunBlockSum(gpuStream{}, x.data(), out.data(), 1, 2000); });
  EXPECT_NE(message.find("RunBlockSum"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  RunBlockSum(gpuStream{}, x.data(), out.data(), 1, 64);
  Synchronize(gpuStream{});
}

TEST_F(RuntimeTest, GraphsReplayWhatWasRecorded) {
  const Stream stream;
  const int count = 500;
  PinnedMemory input(count * sizeof(float));
  auto* values = static_cast<float*>(input.data());
  std::iota(values, values + count, 0.0f);
  const DeviceArray<float> x(static_cast<size_t>(count)), y(std::vector<float>(count, -1.0f));
  RunAdd(stream.get(), x.data(), 0.0f, x.data(), count);
  Graph graph = Graph::Capture(stream.get(), [&] {
    CopyToDevice(x.data(), values, count * sizeof(float), stream.get());
    RunAdd(stream.get(), x.data(), 1.0f, y.data(), count);
    RunAdd(stream.get(), y.data(), 1.0f, y.data(), count);
  });
  EXPECT_FALSE(graph.empty());
  EXPECT_EQ(y.ToHost(stream.get()), std::vector<float>(count, -1.0f)) << "recording runs nothing";
  for (int round = 0; round < 3; ++round) {
    std::iota(values, values + count, 10.0f * static_cast<float>(round));
    graph.Launch(stream.get());
    const std::vector<float> result = y.ToHost(stream.get());
    for (int i = 0; i < count; ++i) ASSERT_EQ(result[static_cast<size_t>(i)], values[i] + 2.0f);
  }
  const Graph moved = std::move(graph);
  moved.Launch(stream.get());
  Synchronize(stream.get());
}

TEST_F(RuntimeTest, AnErrorWhileRecordingLeavesTheStreamUsable) {
  const Stream stream;
  const DeviceArray<float> x(std::vector<float>(64, 1.0f)), y(size_t{64});
  RunAdd(stream.get(), x.data(), 0.0f, y.data(), 64);
  Synchronize(stream.get());
  EXPECT_THROW(static_cast<void>(Graph::Capture(stream.get(),
                                                [&] {
                                                  RunAdd(stream.get(), x.data(), 1.0f, y.data(), 64);
                                                  Throw(ErrorKind::kCancelled, "stop");
                                                })),
               Error);
  RunAdd(stream.get(), x.data(), 5.0f, y.data(), 64);
  EXPECT_EQ(y.ToHost(stream.get()), std::vector<float>(64, 6.0f));
}

}  // namespace
}  // namespace lapidary::gpu::testing
