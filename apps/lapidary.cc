#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "backends/cpu/cpu_backend.h"
#include "base/error.h"
#include "cli/cli.h"
#include "demo_model.h"
#if defined(LAPIDARY_CUDA)
#include "backends/gpu/gpu_backend.h"
#endif

namespace {

using lapidary::Backend;
using lapidary::BackendOptions;
using lapidary::ErrorKind;
using lapidary::ProgressFn;

#if defined(LAPIDARY_CUDA)
using lapidary::Error;

std::unique_ptr<Backend> LoadOnGpu(const BackendOptions& options, const ProgressFn& progress) {
  lapidary::GpuBackendOptions gpu;
  if (options.per_layer_table == "gpu") gpu.per_layer_table = lapidary::PerLayerTable::kDevice;
  if (options.per_layer_table == "host") gpu.per_layer_table = lapidary::PerLayerTable::kHost;
  gpu.bf16_activations = options.bf16_activations;
  return lapidary::LoadGpuBackend(options.folder, gpu, progress);
}

// Without a GPU: nullptr. Where it fails or has no room: the same, and a warning.
std::unique_ptr<Backend> TryGpu(const BackendOptions& options, const ProgressFn& progress) {
  if (!lapidary::WhyNoGpu().empty()) return nullptr;
  try {
    return LoadOnGpu(options, progress);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory && error.kind() != ErrorKind::kDevice &&
        error.kind() != ErrorKind::kUnsupported) {
      throw;
    }
    spdlog::warn("running on the CPU: {}", error.what());
    return nullptr;
  }
}
#else
std::unique_ptr<Backend> LoadOnGpu(const BackendOptions&, const ProgressFn&) {
  lapidary::Throw(ErrorKind::kUnsupported,
                  "device: found cuda, wanted cpu or auto: this build has no GPU backend (preset cuda has)");
}
std::unique_ptr<Backend> TryGpu(const BackendOptions&, const ProgressFn&) { return nullptr; }
#endif

std::unique_ptr<Backend> LoadBackend(const BackendOptions& options, const ProgressFn& progress) {
  if (options.device == "cuda") return LoadOnGpu(options, progress);
  if (options.device == "auto") {
    if (std::unique_ptr<Backend> gpu = TryGpu(options, progress)) return gpu;
  }
  return lapidary::LoadCpuBackend(options.folder, {.threads = options.threads}, progress);
}

}  // namespace

int main(int argc, char** argv) {
  const lapidary::CliEnvironment environment{
      .load_backend = LoadBackend,
      .demo_model = lapidary::FindDemoModel(),
  };
  return lapidary::RunCli(argc, argv, environment);
}
