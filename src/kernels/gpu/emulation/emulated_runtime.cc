#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/emulation/emulated_device.h"
#include "kernels/gpu/emulation/grid.h"
#include "kernels/gpu/runtime.h"

// runtime.h on the host. Streams do their work at once, in the calling thread, unless a graph records it.
namespace lapidary::gpu {

class EmulatedStream {
 public:
  std::vector<std::function<void()>>* recording = nullptr;
};
class EmulatedEvent {
 public:
  std::chrono::steady_clock::time_point recorded;
};

namespace emulation {

EmulatedDevice& Device() {
  static EmulatedDevice device;
  return device;
}

}  // namespace emulation

namespace {

std::atomic<int64_t> allocated_bytes = 0;

constexpr size_t kAlignment = 256;
// Above this, untouched pages are worth more than a pattern.
constexpr size_t kPoisonBytes = 64 << 20;

void* AllocateAligned(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, bytes) != 0) return nullptr;
  if (bytes <= kPoisonBytes) std::memset(data, 0xff, bytes);
  return data;
}

void Submit(gpuStream stream, std::function<void()> work) {
  if (stream != nullptr && stream->recording != nullptr) {
    stream->recording->push_back(std::move(work));
  } else {
    work();
  }
}

void Copy(void* to, const void* from, size_t bytes, gpuStream stream) {
  if (bytes == 0) return;
  Submit(stream, [=] { std::memcpy(to, from, bytes); });
  NoteWork("copy", stream);
}

}  // namespace

std::optional<DeviceInfo> FindDevice(std::string*) {
  const emulation::EmulatedDevice& device = emulation::Device();
  DeviceInfo info;
  info.name = "emulated";
  info.compute_major = 9;
  info.multiprocessors = device.multiprocessors;
  info.memory_bytes = device.memory_bytes;
  info.free_bytes = device.memory_bytes - allocated_bytes;
  info.l2_bytes = device.l2_bytes;
  info.shared_bytes_per_block = device.shared_bytes_per_block;
  return info;
}

DeviceMemory::DeviceMemory(size_t bytes) : size_bytes_(bytes) {
  const auto wanted = static_cast<int64_t>(bytes);
  const int64_t total = emulation::Device().memory_bytes;
  const int64_t before =
      bytes > static_cast<size_t>(total) ? allocated_bytes.load() : allocated_bytes.fetch_add(wanted);
  const bool fits = bytes <= static_cast<size_t>(total) && before + wanted <= total;
  if (fits) data_ = AllocateAligned(bytes);
  if (bytes == 0 || data_ != nullptr) return;
  if (bytes <= static_cast<size_t>(total)) allocated_bytes -= wanted;
  Throw(ErrorKind::kOutOfMemory, "out of memory: wanted " + std::to_string(bytes) +
                                     " bytes of GPU memory, the GPU has " + std::to_string(total - before) + " of " +
                                     std::to_string(total) + " bytes free");
}
DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) allocated_bytes -= static_cast<int64_t>(size_bytes_);
  std::free(data_);
}

PinnedMemory::PinnedMemory(size_t bytes) : data_(AllocateAligned(bytes)), size_bytes_(bytes) {
  if (bytes == 0 || data_ != nullptr) return;
  Throw(ErrorKind::kOutOfMemory, "out of memory: wanted " + std::to_string(bytes) + " bytes of pinned host memory");
}
PinnedMemory::~PinnedMemory() { std::free(data_); }

Stream::Stream() : stream_(new EmulatedStream) {}
Stream::~Stream() { delete stream_; }

Event::Event() : event_(new EmulatedEvent) {}
Event::~Event() { delete event_; }
void Event::Record(gpuStream stream) {
  EmulatedEvent* event = event_;
  Submit(stream, [event] { event->recorded = std::chrono::steady_clock::now(); });
}
void Event::RecordInGraph(gpuStream stream) {
  if (stream == nullptr || stream->recording == nullptr)
    Throw(ErrorKind::kDevice, "recording an event in a graph: the stream is not recording");
  Record(stream);
}
void Event::Synchronize() {}
double Event::ElapsedMs(const Event& from) const {
  return std::chrono::duration<double, std::milli>(event_->recorded - from.event_->recorded).count();
}
void Event::MakeWait(gpuStream) const {}

void CopyToDevice(void* to, const void* from, size_t bytes, gpuStream stream) { Copy(to, from, bytes, stream); }
void CopyToHost(void* to, const void* from, size_t bytes, gpuStream stream) { Copy(to, from, bytes, stream); }
void CopyOnDevice(void* to, const void* from, size_t bytes, gpuStream stream) { Copy(to, from, bytes, stream); }
void Fill(void* to, int byte, size_t bytes, gpuStream stream) {
  if (bytes == 0) return;
  Submit(stream, [=] { std::memset(to, byte, bytes); });
  NoteWork("fill", stream);
}
void Synchronize(gpuStream stream) {
  if (stream != nullptr && stream->recording != nullptr) {
    Throw(ErrorKind::kDevice, "waiting for the GPU: the stream is recording a graph");
  }
}

namespace internal {

void LaunchKernel(const char* what, std::function<void()> thread, const LaunchShape& shape, gpuStream stream) {
  Submit(stream, [what, thread = std::move(thread), shape] { emulation::RunGrid(what, thread, shape); });
  NoteWork(what, stream);
}

}  // namespace internal

Graph Graph::Capture(gpuStream stream, const std::function<void()>& work) {
  if (stream == nullptr || stream->recording != nullptr) {
    Throw(ErrorKind::kDevice, "beginning to record a graph: wanted a stream of its own that is not recording");
  }
  auto recorded = std::make_unique<std::vector<std::function<void()>>>();
  stream->recording = recorded.get();
  try {
    work();
  } catch (...) {
    stream->recording = nullptr;
    throw;
  }
  stream->recording = nullptr;
  Graph graph;
  graph.graph_ = recorded.release();
  return graph;
}
Graph::~Graph() { delete static_cast<std::vector<std::function<void()>>*>(graph_); }
void Graph::Launch(gpuStream stream) const {
  for (const auto& work : *static_cast<const std::vector<std::function<void()>>*>(graph_)) Submit(stream, work);
}

}  // namespace lapidary::gpu
