#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// The host's side of a GPU: memory, streams, launches and graphs under names of our own, so that one source serves
// every vendor. Implemented by runtime.cc for CUDA and by emulation/ on the host; a program links one of the two
// libraries, never both.
#if defined(LAPIDARY_GPU_EMULATION)
namespace lapidary::gpu {
class EmulatedStream;
using gpuStream = EmulatedStream*;
class EmulatedEvent;
using gpuEvent = EmulatedEvent*;
}  // namespace lapidary::gpu
#else
struct CUstream_st;
struct CUevent_st;
namespace lapidary::gpu {
using gpuStream = CUstream_st*;
using gpuEvent = CUevent_st*;
}  // namespace lapidary::gpu
#endif

namespace lapidary::gpu {

constexpr int kWarpSize = 32;

struct DeviceInfo {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0, free_bytes = 0, l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // at most, static and dynamic together
};

// The device that everything below uses (device 0). Without a driver, a device, or machine code for it: nullopt, and
// why in one line at *why_not (which may be null).
std::optional<DeviceInfo> FindDevice(std::string* why_not);

// Memory on the device, aligned to 256 bytes, of undefined contents. Throws kOutOfMemory with the bytes wanted and
// free.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~DeviceMemory();

  void* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Memory on the host that the device copies from and to without staging.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~PinnedMemory();

  void* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Work in one stream runs in the order it was given. The null stream (gpuStream{}) is a valid argument everywhere but
// in Graph::Capture.
class Stream {
 public:
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  gpuStream get() const { return stream_; }

 private:
  gpuStream stream_ = nullptr;
};

class Event {
 public:
  Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  void Record(gpuStream stream);
  // In a capture: each launch of the graph records it again.
  void RecordInGraph(gpuStream stream);
  // Returns when the work before Record is done.
  void Synchronize();
  // From `from`'s Record to this one's; both must have been synchronized with.
  double ElapsedMs(const Event& from) const;
  // What `stream` is given later waits for the work before Record.
  void MakeWait(gpuStream stream) const;

 private:
  gpuEvent event_ = nullptr;
};

// These return at once. A copy from or to memory that is not pinned may take the time of the copy; the memory must stay
// valid until the stream is synchronized with.
void CopyToDevice(void* to, const void* from, size_t bytes, gpuStream stream);
void CopyToHost(void* to, const void* from, size_t bytes, gpuStream stream);
void CopyOnDevice(void* to, const void* from, size_t bytes, gpuStream stream);
void Fill(void* to, int byte, size_t bytes, gpuStream stream);
// Waits for the stream's work; throws kDevice when any of it failed.
void Synchronize(gpuStream stream);

struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block = 1;       // threads; in one dimension
  size_t shared_bytes = 0;  // of DynamicShared()
  bool dependent = false;   // may start before the stream's previous kernel ends: see device/dependent_launch.h
  unsigned cluster = 1;     // blocks in x that run together: see device/cluster.h
  // Blocks wait for each other (device/cells.h): all must fit the device at once, so the grid is at most one block for
  // each multiprocessor.
  bool resident = false;
};

namespace internal {
#if defined(LAPIDARY_GPU_EMULATION)
void LaunchKernel(const char* what, std::function<void()> thread, const LaunchShape& shape, gpuStream stream);
#else
void LaunchKernel(const char* what, const void* kernel, const LaunchShape& shape, gpuStream stream, void** arguments);
#endif
}  // namespace internal

// Launches kernel(args...). Throws kDevice naming `what` (a literal) when the launch fails; what fails later is told by
// Synchronize.
template <typename... P, typename... A>
void Launch(const char* what, void (*kernel)(P...), const LaunchShape& shape, gpuStream stream, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel takes all of its arguments");
  std::tuple<P...> values(std::forward<A>(args)...);
#if defined(LAPIDARY_GPU_EMULATION)
  internal::LaunchKernel(
      what, [kernel, values] { std::apply(kernel, values); }, shape, stream);
#else
  std::apply(
      [&](P&... value) {
        void* arguments[sizeof...(P) + 1] = {&value...};
        internal::LaunchKernel(what, reinterpret_cast<const void*>(kernel), shape, stream, arguments);
      },
      values);
#endif
}

// A sequence of launches, copies and fills, with their arguments as they were, to be launched as one.
class Graph {
 public:
  Graph() = default;
  // Runs `work`, which gives work to `stream` and waits for nothing; the work is recorded instead of done. Launchers
  // called for the first time may have to set up their kernel: call each once before.
  static Graph Capture(gpuStream stream, const std::function<void()>& work);
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~Graph();

  bool empty() const { return graph_ == nullptr; }
  void Launch(gpuStream stream) const;

 private:
  void* graph_ = nullptr;
};

// Where the time of a graph goes: from Start to the end of its life, everything that is given to a stream must be
// recorded into one graph, in one thread, and is followed by a time stamp there. Kernels then run one after another,
// none before the one before it has ended. At most one at a time.
class GraphTimes {
 public:
  GraphTimes() = default;
  GraphTimes(const GraphTimes&) = delete;
  GraphTimes& operator=(const GraphTimes&) = delete;
  ~GraphTimes();

  // Comes first in the capture: copies before it are not recorded, so cannot be stamped.
  void Start(gpuStream stream);

  struct Entry {
    std::string name;
    double ms = 0;      // less what a time stamp takes
    int64_t bytes = 0;  // moved, as far as told
  };
  // In order; when the graph has run and its stream was waited for.
  std::vector<Entry> Read() const;

 private:
  friend void NoteWork(const char* name, gpuStream stream);
  friend void NoteBytes(int64_t bytes);

  void Stamp(const char* name, gpuStream stream);

  std::deque<Event> stamps_;
  std::vector<Entry> entries_;  // entry i ends with stamp i + 1
};

// For GraphTimes, when there is one: names what was just given to `stream`. Launches, copies and fills do it
// themselves.
void NoteWork(const char* name, gpuStream stream);
// The bytes that the last noted work moves.
void NoteBytes(int64_t bytes);

}  // namespace lapidary::gpu
