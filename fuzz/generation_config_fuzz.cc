#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/config.h"

// Any text either gives defaults inside their bounds, or an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const lapidary::GenerationConfig config =
        lapidary::ParseGenerationConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const int32_t id : lapidary::EosTokenIds({}, config)) {
      if (id < 0) std::abort();
    }
    if (!std::is_sorted(config.suppress_tokens.begin(), config.suppress_tokens.end())) std::abort();
    if (config.temperature && !(*config.temperature >= 0)) std::abort();
    if (config.top_p && !(*config.top_p >= 0 && *config.top_p <= 1)) std::abort();
    if (config.top_k && *config.top_k < 0) std::abort();
  } catch (const lapidary::Error&) {
  }
  return 0;
}
