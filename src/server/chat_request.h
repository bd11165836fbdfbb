#pragma once

#include <optional>
#include <string>

#include "chat/chat_template.h"
#include "server/sampling_fields.h"

namespace lapidary {

// What a prompt is made from: of a chat completion, /apply-template and /tokenize.
struct ChatPromptFields {
  ChatRequest chat;
  bool tools_offered = false;              // and may be called
  bool forces_call = false;                // the answer begins with a call
  std::optional<std::string> forced_name;  // of that function; unset: the model chooses
};

// Reads and checks messages, tools, tool_choice, chat_template_kwargs and reasoning_effort. Throws ApiError 400.
ChatPromptFields ReadChatPromptFields(JsonFields& fields);

struct ChatCompletionRequest {
  ChatPromptFields prompt;
  SamplingFields sampling;
  bool one_call = false;  // parallel_tool_calls: false
  int top_logprobs = -1;  // as in AnswerRequest
};

// A whole request to /v1/chat/completions, but for `model`. Throws ApiError 400.
ChatCompletionRequest ReadChatCompletion(JsonFields& fields, const SamplingLimits& limits);

}  // namespace lapidary
