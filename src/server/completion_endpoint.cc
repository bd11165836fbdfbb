#include <utility>

#include "server/answer_loop.h"
#include "server/completion_format.h"
#include "server/completion_request.h"
#include "server/endpoints.h"

namespace lapidary {
namespace {

// The tokens of one prompt. A text too long to be cut into tokens is told like one that has too many.
std::vector<int32_t> Encode(const ApiContext& context, const CompletionPrompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    CheckContext(context, ids->size(), "prompt");
    return *ids;
  }
  const TextModel& model = context.service.model();
  model.RequireTokenizer("to read a text prompt");
  std::vector<int32_t> ids;
  try {
    ids = model.EncodePrompt(std::get<std::string>(prompt), context.service.engine_options().max_context);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "prompt", "context_length_exceeded");
  }
  CheckContext(context, ids.size(), "prompt");
  return ids;
}

EchoedPrompt Echo(const ApiContext& context, const CompletionPrompt& prompt, const std::vector<int32_t>& ids) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return {*text, ids};
  const Tokenizer* tokenizer = context.service.model().tokenizer();
  std::string text;
  if (tokenizer) {
    std::vector<int32_t> known;  // tables may be padded
    for (const int32_t id : ids) {
      if (id < tokenizer->size()) known.push_back(id);
    }
    text = tokenizer->Decode(known, true);
  }
  return {text, ids};
}

AnswerRequest MakeAnswer(const CompletionRequest& request, const std::vector<int32_t>& prompt, size_t choice) {
  AnswerRequest answer;
  answer.prompt = prompt;
  answer.options = request.sampling.options;
  if (answer.options.seed) *answer.options.seed += choice;
  answer.stop_ids = request.sampling.stop_ids;
  answer.top_logprobs = request.top_logprobs;
  answer.prompt_logprobs = request.echo && request.top_logprobs >= 0;
  return answer;
}

// Nothing to compute: the prompts alone, as they are.
AnswerDelta EmptyAnswer(const EchoedPrompt& prompt) {
  AnswerDelta delta;
  delta.end.emplace();
  delta.end->finish = FinishReason::kLength;
  delta.end->prompt_tokens = static_cast<int64_t>(prompt.ids.size());
  return delta;
}

Task<> SendPromptsAlone(HttpExchange& exchange, const std::vector<EchoedPrompt>& prompts, CompletionFormat& format,
                        size_t n) {
  Usage usage(n);
  for (size_t i = 0; i < prompts.size() * n; ++i) {
    const AnswerDelta answer = EmptyAnswer(prompts[i / n]);
    format.Take(i, answer);
    usage.Add(i, *answer.end);
  }
  co_await SendJson(exchange, format.Whole(usage));
}

}  // namespace

Task<> Completions(ApiContext& context, HttpExchange& exchange) {
  RefuseWhileDraining(context);
  const OrderedJson body = ParseBody(exchange);
  JsonFields fields(body, "");
  std::string model = ReadModel(fields, context.options);
  const CompletionRequest request = ReadCompletion(fields, LimitsOf(context));
  const auto n = static_cast<size_t>(request.sampling.n);
  AnswerPlan plan;
  plan.choices_per_prompt = n;
  plan.stream = request.sampling.stream;
  plan.include_usage = request.sampling.include_usage;
  std::vector<EchoedPrompt> echo;
  for (const CompletionPrompt& prompt : request.prompts) {
    const std::vector<int32_t> ids = Encode(context, prompt);
    for (size_t i = 0; i < n; ++i) plan.requests.push_back(MakeAnswer(request, ids, i));
    if (request.echo) echo.push_back(Echo(context, prompt, ids));
  }
  CompletionFormatOptions options;
  options.header = MakeHeader(exchange, "cmpl-", std::move(model));
  options.tokenizer = context.service.model().tokenizer();
  options.choices_per_prompt = n;
  options.logprobs = request.top_logprobs >= 0;
  options.top_logprobs = request.top_logprobs > 0;
  options.token_ids = request.sampling.return_token_ids;
  CompletionFormat format(std::move(options), plan.requests.size(), echo);
  if (request.sampling.options.max_new_tokens == 0 && request.top_logprobs < 0) {
    co_await SendPromptsAlone(exchange, echo, format, n);
  } else {
    co_await Answer(context, exchange, std::move(plan), format);
  }
}

}  // namespace lapidary
