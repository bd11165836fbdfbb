#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/parse_values.h"
#include "cli/usage_error.h"
#include "sampling/sampler.h"
#include "synth/synth.h"

namespace {

void CheckOneLine(std::string_view message) {
  if (message.find('\n') != std::string_view::npos) std::abort();
}

template <typename Parse>
void Try(const Parse& parse) {
  try {
    parse();
  } catch (const lapidary::Error& error) {
    CheckOneLine(error.what());
  } catch (const lapidary::UsageError& error) {
    CheckOneLine(error.what());
  }
}

}  // namespace

// Any text is either a value within its promised bounds or an Error of one line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Try([&] {
    for (const int32_t id : lapidary::ParseIds(text, "ids")) {
      if (id < 0) std::abort();
    }
  });
  Try([&] {
    const std::vector<int64_t> counts = lapidary::ParseCounts(text, "counts");
    if (counts.empty()) std::abort();
    for (const int64_t count : counts) {
      if (count < 1 || count > INT32_MAX) std::abort();
    }
  });
  Try([&] {
    lapidary::SamplingParams params;
    params.logit_bias.push_back(lapidary::ParseLogitBias(text));
    const auto& [id, value] = params.logit_bias.front();
    if (id < 0 || !std::isfinite(value)) std::abort();
    lapidary::CheckSamplingParams(params, 262144);
  });
  Try([&] {
    const std::string name = lapidary::RepositoryName(text);
    if (name.empty() || name == ".." || name.find('/') != std::string::npos) std::abort();
  });
  Try([&] {
    if (lapidary::SynthShape(std::string(text)).empty()) std::abort();
  });
  return 0;
}
