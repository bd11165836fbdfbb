#include "kernels/gpu/runtime.h"

#include <cuda_runtime_api.h>

#include <exception>
#include <map>
#include <mutex>

#include "base/error.h"
#include "kernels/gpu/device_probe.h"

namespace lapidary::gpu {
namespace {

std::string Describe(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}

void Check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  // An error that leaves the device usable must not be told again by the next call.
  static_cast<void>(cudaGetLastError());
  Throw(ErrorKind::kDevice, what + ": the GPU answered " + Describe(error));
}

std::string Version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

// What keeps the runtime from finding any device; empty when it finds one.
std::string WhyNoDevice() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver is installed";
  const int wanted = CUDART_VERSION / 1000 * 1000;
  const std::string too_old = "the NVIDIA driver is too old: it supports CUDA up to " + Version(driver) +
                              ", wanted is " + Version(wanted) + " or later";
  if (driver < wanted) return too_old;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorInsufficientDriver) return too_old;
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) return "the NVIDIA driver shows no GPU";
  return error == cudaSuccess ? "" : "the GPU answered " + Describe(error);
}

DeviceInfo DescribeDevice() {
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0), "asking for the properties of the GPU");
  DeviceInfo info;
  info.name = properties.name;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.l2_bytes = properties.l2CacheSize;
  info.shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  return info;
}

void* Allocate(const char* where, size_t bytes, cudaError_t (*allocate)(void**, size_t)) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t error = allocate(&data, bytes);
  if (error == cudaSuccess) return data;
  static_cast<void>(cudaGetLastError());
  const std::string wanted = std::to_string(bytes) + " bytes of " + where;
  if (error != cudaErrorMemoryAllocation) Check(error, "allocating " + wanted);
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "asking for the free memory of the GPU");
  Throw(ErrorKind::kOutOfMemory, "out of memory: wanted " + wanted + ", the GPU has " + std::to_string(free) + " of " +
                                     std::to_string(total) + " bytes free");
}

// Before a kernel's first launch, and when it is given more shared memory than before. All kernels have the largest
// share of each multiprocessor as shared memory: one with another split cannot start while an earlier one still runs.
void PrepareKernel(const char* what, const void* kernel, size_t bytes) {
  constexpr size_t kWithoutAsking = 48 << 10;
  static std::mutex mutex;
  static std::map<const void*, size_t> allowed;
  const std::lock_guard lock(mutex);
  const auto [known, is_new] = allowed.try_emplace(kernel, kWithoutAsking);
  if (is_new) {
    Check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
          std::string(what) + ", asking for the split of shared memory");
  }
  if (bytes <= known->second) return;
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        std::string(what) + ", asking for " + std::to_string(bytes) + " bytes of shared memory");
  known->second = bytes;
}

// Of device 0; asked for once.
int ComputeMajor() {
  static const int major = [] {
    int value = 0;
    Check(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), "asking for the GPU's architecture");
    return value;
  }();
  return major;
}

}  // namespace

std::optional<DeviceInfo> FindDevice(std::string* why_not) {
  std::string why = WhyNoDevice();
  if (why.empty()) {
    DeviceInfo info = DescribeDevice();
    const std::string name = info.name + " (compute capability " + std::to_string(info.compute_major) + "." +
                             std::to_string(info.compute_minor) + ")";
    cudaFuncAttributes attributes;
    cudaError_t error = cudaSetDevice(0);
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, ProbeKernel());
    static_cast<void>(cudaGetLastError());
    size_t free = 0, total = 0;
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
      why = "this build has no machine code for " + name + "; it has for " LAPIDARY_CUDA_ARCHITECTURES;
    } else if (error != cudaSuccess || (error = cudaMemGetInfo(&free, &total)) != cudaSuccess) {
      why = name + " cannot be used: it answered " + Describe(error);
    } else {
      info.free_bytes = static_cast<int64_t>(free);
      info.memory_bytes = static_cast<int64_t>(total);
      return info;
    }
  }
  if (why_not != nullptr) *why_not = why;
  return std::nullopt;
}

DeviceMemory::DeviceMemory(size_t bytes)
    : data_(Allocate("GPU memory", bytes, [](void** data, size_t n) { return cudaMalloc(data, n); })),
      size_bytes_(bytes) {}
DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

PinnedMemory::PinnedMemory(size_t bytes)
    : data_(Allocate("pinned host memory", bytes,
                     [](void** data, size_t n) { return cudaHostAlloc(data, n, cudaHostAllocDefault); })),
      size_bytes_(bytes) {}
PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

Stream::Stream() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
Stream::~Stream() { cudaStreamDestroy(stream_); }

Event::Event() { Check(cudaEventCreate(&event_), "making an event"); }
Event::~Event() { cudaEventDestroy(event_); }
void Event::Record(gpuStream stream) { Check(cudaEventRecord(event_, stream), "recording an event"); }
void Event::RecordInGraph(gpuStream stream) {
  Check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "recording an event in a graph");
}
void Event::Synchronize() { Check(cudaEventSynchronize(event_), "waiting for an event"); }
double Event::ElapsedMs(const Event& from) const {
  float ms = 0;
  Check(cudaEventElapsedTime(&ms, from.event_, event_), "asking for the time between events");
  return ms;
}
void Event::MakeWait(gpuStream stream) const { Check(cudaStreamWaitEvent(stream, event_, 0), "making a stream wait"); }

void CopyToDevice(void* to, const void* from, size_t bytes, gpuStream stream) {
  if (bytes == 0) return;
  Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "copying to the GPU");
  NoteWork("copy", stream);
}
void CopyToHost(void* to, const void* from, size_t bytes, gpuStream stream) {
  if (bytes == 0) return;
  Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "copying from the GPU");
  NoteWork("copy", stream);
}
void CopyOnDevice(void* to, const void* from, size_t bytes, gpuStream stream) {
  if (bytes == 0) return;
  Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copying on the GPU");
  NoteWork("copy", stream);
}
void Fill(void* to, int byte, size_t bytes, gpuStream stream) {
  if (bytes == 0) return;
  Check(cudaMemsetAsync(to, byte, bytes, stream), "filling memory of the GPU");
  NoteWork("fill", stream);
}
void Synchronize(gpuStream stream) { Check(cudaStreamSynchronize(stream), "waiting for the GPU"); }

namespace internal {

void LaunchKernel(const char* what, const void* kernel, const LaunchShape& shape, gpuStream stream, void** arguments) {
  PrepareKernel(what, kernel, shape.shared_bytes);
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.grid_x, shape.grid_y, shape.grid_z);
  config.blockDim = dim3(shape.block);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  // Before compute capability 9 kernels of a stream start one after the other, and there are no clusters.
  const bool hopper = ComputeMajor() >= 9;
  if (shape.dependent && hopper) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    if (!hopper) Throw(ErrorKind::kUnsupported, std::string(what) + ": this GPU has no block clusters");
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = shape.cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
  Check(cudaLaunchKernelExC(&config, kernel, arguments), what);
  NoteWork(what, stream);
}

}  // namespace internal

Graph Graph::Capture(gpuStream stream, const std::function<void()>& work) {
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning to record a graph");
  cudaGraph_t recorded = nullptr;
  try {
    work();
  } catch (...) {
    // The capture must end before the stream can be used again.
    static_cast<void>(cudaStreamEndCapture(stream, &recorded));
    static_cast<void>(cudaGetLastError());
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    throw;
  }
  Check(cudaStreamEndCapture(stream, &recorded), "recording a graph");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, recorded, 0);
  cudaGraphDestroy(recorded);
  Check(error, "instantiating a graph");
  Graph graph;
  graph.graph_ = executable;
  return graph;
}
Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
}
void Graph::Launch(gpuStream stream) const {
  Check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream), "launching a graph");
}

}  // namespace lapidary::gpu
