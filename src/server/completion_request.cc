#include "server/completion_request.h"

#include <fmt/core.h>

#include <limits>

#include "server/api_error.h"

namespace lapidary {
namespace {

constexpr size_t kMaxPrompts = 2048;
constexpr int64_t kDefaultTokens = 16;  // as OpenAI's

CompletionPrompt ReadPrompt(const OrderedJson& value, const std::string& place, int64_t vocab) {
  if (value.is_string()) {
    if (value.get_ref<const std::string&>().empty()) RefuseField(place, "an empty text", "at least one character");
    return value.get<std::string>();
  }
  if (!value.is_array() || value.empty()) RefuseField(place, Found(value), "a text or an array of token ids");
  return ReadTokenIds(value, place, vocab);
}

// A text, token ids, or an array of either.
std::vector<CompletionPrompt> ReadPrompts(JsonFields& fields, int64_t vocab) {
  const OrderedJson* value = fields.Find("prompt");
  if (!value) RefuseField("prompt", "none", "a text, token ids, or an array of either");
  const bool several = value->is_array() && !value->empty() && !value->front().is_number();
  if (!several) return {ReadPrompt(*value, "prompt", vocab)};
  if (value->size() > kMaxPrompts) RefuseField("prompt", Found(*value), fmt::format("at most {} prompts", kMaxPrompts));
  std::vector<CompletionPrompt> prompts;
  for (size_t i = 0; i < value->size(); ++i) {
    prompts.push_back(ReadPrompt((*value)[i], fmt::format("prompt[{}]", i), vocab));
  }
  return prompts;
}

}  // namespace

CompletionRequest ReadCompletion(JsonFields& fields, const SamplingLimits& limits) {
  CompletionRequest request;
  request.prompts = ReadPrompts(fields, limits.vocab);
  request.sampling = ReadSamplingFields(fields, limits);
  request.echo = fields.Bool("echo").value_or(false);
  // With the prompt shown there is something to say without an answer.
  const std::optional<int64_t> tokens =
      fields.Integer("max_tokens", request.echo ? 0 : 1, std::numeric_limits<int32_t>::max());
  request.sampling.options.max_new_tokens = tokens.value_or(kDefaultTokens);
  request.top_logprobs = static_cast<int>(fields.Integer("logprobs", 0, 20).value_or(-1));
  const int64_t best_of = fields.Integer("best_of", 1, limits.max_choices).value_or(request.sampling.n);
  if (best_of != request.sampling.n) RefuseField("best_of", std::to_string(best_of), "the same as n");
  if (const std::optional<std::string> suffix = fields.String("suffix"); suffix && !suffix->empty()) {
    fields.Refuse("suffix", "not supported: the model cannot fill in a middle");
  }
  fields.RefuseUnknown();
  return request;
}

}  // namespace lapidary
