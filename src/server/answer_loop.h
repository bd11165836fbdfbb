#pragma once

#include <vector>

#include "generation/text_service.h"
#include "server/answer_format.h"
#include "server/api.h"

namespace lapidary {

struct AnswerPlan {
  std::vector<AnswerRequest> requests;  // one for each choice
  size_t choices_per_prompt = 1;
  bool stream = false;
  bool include_usage = false;
};

// Submits the requests, and sends their answers as `format` writes them. Throws ApiError, or Error, for what goes wrong
// before the first byte and, as the exchange then knows, behind it.
Task<> Answer(ApiContext& context, HttpExchange& exchange, AnswerPlan plan, AnswerFormat& format);

}  // namespace lapidary
