#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"
#if defined(LAPIDARY_TEST_ON_GPU)
#include "backends/gpu/gpu_backend.h"
#if defined(LAPIDARY_GPU_EMULATION)
#include "kernels/gpu/emulation/emulated_device.h"
#endif
#else
#include "backends/cpu/cpu_backend.h"
#endif

namespace lapidary {

// The backend that a test program is built for: the CPU's, or the GPU's (LAPIDARY_TEST_ON_GPU), which runs on a GPU or
// in the emulation, as the program is linked.
inline std::unique_ptr<Backend> LoadTestBackend(const std::string& folder) {
#if defined(LAPIDARY_TEST_ON_GPU)
  return LoadGpuBackend(folder, {}, {});
#else
  return LoadCpuBackend(folder, {2}, {});
#endif
}

// The emulation takes seconds for a token: whole answers are for a real device.
#if defined(LAPIDARY_GPU_EMULATION)
inline constexpr bool kIsSlow = true;
#else
inline constexpr bool kIsSlow = false;
#endif

// Why the tests are skipped; empty when they are not. Called before anything else.
inline std::string WhyNoTestBackend() {
#if defined(LAPIDARY_GPU_EMULATION)
  gpu::emulation::Device().multiprocessors = 4;  // enough for tiny models, and so much faster
#endif
#if defined(LAPIDARY_TEST_ON_GPU)
  return WhyNoGpu();
#else
  return "";
#endif
}

}  // namespace lapidary
