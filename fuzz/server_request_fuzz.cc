#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "chat/chat_template.h"
#include "chat/ordered_json.h"
#include "server/api_error.h"
#include "server/chat_request.h"
#include "server/completion_request.h"

namespace {

// Whatever is refused is told in one line, as JSON.
template <typename Read>
void Try(const Read& read) {
  try {
    read();
  } catch (const lapidary::ApiError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    if (error.status() < 400 || error.status() > 499) std::abort();
    if (error.Body().dump().size() > 4096) std::abort();
  } catch (const lapidary::Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
}

}  // namespace

// Any body is either a request within its promised bounds, which the template then renders or refuses, or an error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  lapidary::OrderedJson body;
  try {
    body = lapidary::ParseOrderedJson(text, "body");
  } catch (const lapidary::Error&) {
    return 0;
  }
  if (!body.is_object()) return 0;
  const lapidary::SamplingLimits limits{.vocab = 1000};
  Try([&] {
    lapidary::JsonFields fields(body, "");
    lapidary::ChatCompletionRequest request = lapidary::ReadChatCompletion(fields, limits);
    if (request.sampling.n < 1 || request.sampling.n > 128 || request.top_logprobs > 20) std::abort();
    lapidary::ChatPrompt prompt = lapidary::ChatTemplate(lapidary::ChatVariant::kSmall).Render(request.prompt.chat);
    if (request.prompt.forces_call) lapidary::ForceToolCall(prompt, request.prompt.forced_name);
  });
  Try([&] {
    lapidary::JsonFields fields(body, "");
    const lapidary::CompletionRequest request = lapidary::ReadCompletion(fields, limits);
    if (request.prompts.empty()) std::abort();
    for (const lapidary::CompletionPrompt& prompt : request.prompts) {
      const auto* ids = std::get_if<std::vector<int32_t>>(&prompt);
      for (size_t i = 0; ids && i < ids->size(); ++i) {
        if ((*ids)[i] < 0 || (*ids)[i] >= 1000) std::abort();
      }
    }
  });
  return 0;
}
