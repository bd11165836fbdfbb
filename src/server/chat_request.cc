#include "server/chat_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/chat_messages.h"

namespace lapidary {
namespace {

// Gemma 4 thinks or does not: any effort but the two lowest turns it on. What chat_template_kwargs say goes before.
bool ReadThinking(JsonFields& fields, ChatRequest& chat) {
  bool thinking = false;
  if (const std::optional<std::string> effort = fields.String("reasoning_effort")) {
    constexpr std::array<std::string_view, 2> kOff = {"none", "minimal"};
    constexpr std::array<std::string_view, 4> kOn = {"low", "medium", "high", "xhigh"};
    thinking = std::find(kOn.begin(), kOn.end(), *effort) != kOn.end();
    if (!thinking && std::find(kOff.begin(), kOff.end(), *effort) == kOff.end()) {
      RefuseField("reasoning_effort", Found(OrderedJson(*effort)), "none, minimal, low, medium, high or xhigh");
    }
  }
  const OrderedJson* kwargs = fields.Object("chat_template_kwargs");
  if (!kwargs) return thinking;
  JsonFields inner(*kwargs, "chat_template_kwargs.");
  chat.preserve_thinking = inner.Bool("preserve_thinking").value_or(false);
  const std::optional<bool> enable = inner.Bool("enable_thinking");
  inner.RefuseUnknown();
  return enable.value_or(thinking);
}

// {"type": "function", "function": {"name": N}} -> N
std::string NamedFunction(const OrderedJson& choice, const std::vector<std::string>& names) {
  JsonFields fields(choice, "tool_choice.");
  const std::optional<std::string> type = fields.String("type");
  const OrderedJson* function = fields.Object("function");
  if (type != "function" || !function) {
    RefuseField("tool_choice", Found(choice), "none, auto, required, or a function by its name");
  }
  std::string name = JsonFields(*function, "tool_choice.function.").String("name").value_or("");
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    RefuseField("tool_choice.function.name", Found(OrderedJson(name)), "the name of one of the tools");
  }
  return name;
}

void ReadToolChoice(JsonFields& fields, const std::vector<std::string>& names, ChatPromptFields& prompt) {
  prompt.tools_offered = !names.empty();
  const OrderedJson* choice = fields.Find("tool_choice");
  if (!choice || *choice == "auto") return;
  if (*choice == "none") {
    prompt.tools_offered = false;
    return;
  }
  if (*choice != "required" && !choice->is_object()) {
    RefuseField("tool_choice", Found(*choice), "none, auto, required, or a function by its name");
  }
  if (names.empty()) RefuseField("tool_choice", Found(*choice), "tools with it");
  prompt.forces_call = true;
  if (choice->is_object()) prompt.forced_name = NamedFunction(*choice, names);
}

int64_t ReadMaxTokens(JsonFields& fields) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const std::optional<int64_t> old_name = fields.Integer("max_tokens", 1, kMost);
  const std::optional<int64_t> tokens = fields.Integer("max_completion_tokens", 1, kMost);
  if (tokens && old_name && *tokens != *old_name) {
    RefuseField("max_tokens", std::to_string(*old_name), "the same as max_completion_tokens, or one of the two");
  }
  return tokens ? *tokens : old_name.value_or(-1);
}

int ReadTopLogprobs(JsonFields& fields) {
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.Integer("top_logprobs", 0, 20);
  if (top && !wanted && *top > 0) RefuseField("top_logprobs", "it without logprobs", "logprobs: true");
  return wanted ? static_cast<int>(top.value_or(0)) : -1;
}

void RefuseUnsupported(JsonFields& fields) {
  for (const char* name : {"functions", "function_call"})
    fields.Refuse(name, "not supported: use tools and tool_choice");
  fields.Refuse("audio", "not supported: this server writes text only");
  fields.Refuse("web_search_options", "not supported");
  fields.Refuse("verbosity", "not supported");
  const OrderedJson* modalities = fields.Array("modalities");
  if (modalities && *modalities != OrderedJson::array({"text"})) {
    throw ApiError(400, "modalities: this server writes text only", "modalities", "unsupported_value");
  }
}

}  // namespace

ChatPromptFields ReadChatPromptFields(JsonFields& fields) {
  ChatPromptFields prompt;
  const OrderedJson* messages = fields.Find("messages");
  if (!messages) RefuseField("messages", "none", "an array of at least one");
  CheckMessages(*messages);
  std::vector<std::string> names;
  const OrderedJson* tools = fields.Find("tools");
  if (tools) names = CheckTools(*tools);
  ReadToolChoice(fields, names, prompt);
  prompt.chat.messages = *messages;
  if (prompt.tools_offered) prompt.chat.tools = *tools;
  prompt.chat.enable_thinking = ReadThinking(fields, prompt.chat);
  return prompt;
}

ChatCompletionRequest ReadChatCompletion(JsonFields& fields, const SamplingLimits& limits) {
  ChatCompletionRequest request;
  request.prompt = ReadChatPromptFields(fields);
  request.sampling = ReadSamplingFields(fields, limits);
  request.sampling.options.max_new_tokens = ReadMaxTokens(fields);
  request.top_logprobs = ReadTopLogprobs(fields);
  request.one_call = !fields.Bool("parallel_tool_calls").value_or(true);
  RefuseUnsupported(fields);
  fields.RefuseUnknown();
  return request;
}

}  // namespace lapidary
