#pragma once

#include <cstddef>
#include <span>

#include "base/progress.h"

namespace lapidary::gpu {

// One stretch of mapped weights and its place in device memory.
struct UploadPiece {
  std::byte* to;
  const void* from;
  size_t bytes;
};

// Copies all pieces: several threads read the mapping into pinned buffers while earlier buffers are on their way.
// Returns when everything has arrived. `progress` (may be empty) counts bytes, on the calling thread; what it throws
// stops the upload and passes on. Throws Error kOutOfMemory, kDevice.
void UploadWeights(std::span<const UploadPiece> pieces, const ProgressFn& progress);

}  // namespace lapidary::gpu
