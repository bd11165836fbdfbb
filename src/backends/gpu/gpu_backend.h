#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/progress.h"

namespace lapidary {

// Where the table of per-layer embeddings lies (4.7 GB of E2B's 9.3): the device reads single rows of it.
enum class PerLayerTable : uint8_t { kDevice, kHost, kAuto };  // kAuto: on the host when the device has no room

struct GpuBackendOptions {
  PerLayerTable per_layer_table = PerLayerTable::kAuto;
  // Activations of steps of more than 8 rows as one bfloat16 term instead of three: up to three times as fast for long
  // prompts and large batches, and as exact as bfloat16 activations are (docs/numerics.md).
  bool bf16_activations = false;
};

// Why there is no GPU to use, in one line; empty when there is one.
std::string WhyNoGpu();

// Copies the checkpoint in `folder` to the GPU. `progress` (may be empty) counts bytes. Throws Error as
// TensorIndex::Open, LoadConfig and BindWeights do, and kUnsupported (no usable GPU, weights that are not BF16),
// kOutOfMemory, kDevice.
std::unique_ptr<Backend> LoadGpuBackend(const std::string& folder, const GpuBackendOptions& options,
                                        const ProgressFn& progress);

}  // namespace lapidary
