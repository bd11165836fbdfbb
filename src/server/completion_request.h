#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "server/sampling_fields.h"

namespace lapidary {

// One prompt: a text, or token ids as they are.
using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::vector<CompletionPrompt> prompts;  // at least one
  SamplingFields sampling;
  bool echo = false;
  int top_logprobs = -1;  // as in AnswerRequest
};

// A whole request to /v1/completions, but for `model`. Throws ApiError 400.
CompletionRequest ReadCompletion(JsonFields& fields, const SamplingLimits& limits);

}  // namespace lapidary
