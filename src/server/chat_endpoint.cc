#include <utility>

#include "server/answer_loop.h"
#include "server/chat_format.h"
#include "server/endpoints.h"

namespace lapidary {
namespace {

AnswerRequest MakeAnswer(const ChatCompletionRequest& request, const EncodedChat& chat, size_t choice) {
  AnswerRequest answer;
  answer.prompt = chat.ids;
  answer.options = request.sampling.options;
  // Each choice draws for itself, and the same way next time.
  if (answer.options.seed) *answer.options.seed += choice;
  answer.reader.chat = ChatParserOptions{.starts_in_reasoning = chat.prompt.starts_in_reasoning,
                                         .tools_offered = request.prompt.tools_offered,
                                         .ends_with_turn = !request.sampling.options.ignore_eos};
  answer.reader.forced_opening = chat.forced_opening;
  answer.reader.one_call = request.one_call;
  answer.stop_ids = request.sampling.stop_ids;
  answer.top_logprobs = request.top_logprobs;
  return answer;
}

}  // namespace

Task<> ChatCompletions(ApiContext& context, HttpExchange& exchange) {
  RefuseWhileDraining(context);
  const OrderedJson body = ParseBody(exchange);
  JsonFields fields(body, "");
  std::string model = ReadModel(fields, context.options);
  const ChatCompletionRequest request = ReadChatCompletion(fields, LimitsOf(context));
  const EncodedChat chat = EncodeChat(context, request.prompt);
  CheckContext(context, chat.ids.size(), "messages");

  const auto choices = static_cast<size_t>(request.sampling.n);
  AnswerPlan plan;
  plan.choices_per_prompt = choices;
  plan.stream = request.sampling.stream;
  plan.include_usage = request.sampling.include_usage;
  for (size_t i = 0; i < choices; ++i) plan.requests.push_back(MakeAnswer(request, chat, i));
  ChatFormatOptions options;
  options.header = MakeHeader(exchange, "chatcmpl-", std::move(model));
  options.tokenizer = context.service.model().tokenizer();
  options.choices = choices;
  options.logprobs = request.top_logprobs >= 0;
  options.token_ids = request.sampling.return_token_ids;
  ChatFormat format(std::move(options));
  co_await Answer(context, exchange, std::move(plan), format);
}

}  // namespace lapidary
