#pragma once

#include <cstdint>
#include <vector>

#include "generation/generate_options.h"
#include "server/json_fields.h"

namespace lapidary {

// What a client can set for every kind of answer, under OpenAI's name or, where OpenAI has none, vLLM's.
struct SamplingFields {
  GenerateOptions options;
  std::vector<int32_t> stop_ids;
  int64_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
};

struct SamplingLimits {
  int64_t vocab = 0;
  int64_t max_choices = 128;
  Speculation speculation = Speculation::kNone;  // unless the request says otherwise
};

// Reads and checks them; refuses those that would change the answer and are not supported. Throws ApiError 400.
SamplingFields ReadSamplingFields(JsonFields& fields, const SamplingLimits& limits);

}  // namespace lapidary
