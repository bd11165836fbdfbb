#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/progress.h"

namespace lapidary {

struct CpuBackendOptions {
  int threads = 0;  // 0: one for each physical core this process may use
};

// Maps the checkpoint in `folder` and checks it. The weights stay where they are: pages come from the file as they are
// read; all but the per-layer embedding table are mapped in here, so that the first step does not fault on each page.
// `progress` (may be empty) counts those bytes. Throws Error as TensorIndex::Open, LoadConfig and BindWeights do.
std::unique_ptr<Backend> LoadCpuBackend(const std::string& folder, const CpuBackendOptions& options,
                                        const ProgressFn& progress);

}  // namespace lapidary
