#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "checkpoint/tensor_index.h"

// Any bytes either parse into tensors that lie inside them, or give an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    uint64_t sum = 0;
    for (const lapidary::StoredTensor& tensor : lapidary::ParseSafetensors(bytes, "fuzz")) {
      if (tensor.elements() < 0) std::abort();
      for (const std::byte byte : tensor.bytes) sum += static_cast<uint64_t>(byte);
    }
    if (sum > 255 * size) std::abort();  // each byte belongs to one tensor at most
  } catch (const lapidary::Error&) {
  }
  return 0;
}
