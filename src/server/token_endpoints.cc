#include <vector>

#include "server/endpoints.h"

namespace lapidary {
namespace {

OrderedJson Tokens(const ApiContext& context, const std::vector<int32_t>& ids) {
  OrderedJson json;
  json["count"] = ids.size();
  json["max_model_len"] = context.service.engine_options().max_context;
  json["tokens"] = ids;
  return json;
}

// vLLM calls the text `prompt` and begins it with <bos> unless told; llama.cpp calls it `content` and does not.
std::vector<int32_t> EncodeText(JsonFields& fields, const Tokenizer& tokenizer) {
  const std::optional<std::string> prompt = fields.String("prompt"), content = fields.String("content");
  if (prompt.has_value() == content.has_value()) {
    RefuseField("prompt", prompt ? "content too" : "none", "one of prompt, content and messages");
  }
  const bool llama = content.has_value();
  const bool add_bos = fields.Bool(llama ? "add_special" : "add_special_tokens").value_or(!llama);
  const bool match_special = fields.Bool("parse_special").value_or(true);
  fields.RefuseUnknown();
  return tokenizer.Encode(llama ? *content : *prompt, {.add_bos = add_bos, .match_special = match_special});
}

}  // namespace

Task<> Tokenize(ApiContext& context, HttpExchange& exchange) {
  const OrderedJson body = ParseBody(exchange);
  JsonFields fields(body, "");
  ReadModel(fields, context.options);
  const Tokenizer& tokenizer = context.service.model().RequireTokenizer("to read text");
  std::vector<int32_t> ids;
  if (fields.Find("messages")) {
    ChatPromptFields prompt = ReadChatPromptFields(fields);
    prompt.chat.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
    fields.RefuseUnknown();
    ids = EncodeChat(context, prompt).ids;
  } else {
    ids = EncodeText(fields, tokenizer);
  }
  const OrderedJson json = Tokens(context, ids);
  co_await SendJson(exchange, json);
}

Task<> Detokenize(ApiContext& context, HttpExchange& exchange) {
  const OrderedJson body = ParseBody(exchange);
  JsonFields fields(body, "");
  ReadModel(fields, context.options);
  const Tokenizer& tokenizer = context.service.model().RequireTokenizer("to write text");
  const std::optional<std::vector<int32_t>> ids = fields.Ids("tokens", tokenizer.size());
  if (!ids) RefuseField("tokens", "none", "an array of token ids");
  const bool skip_special = fields.Bool("skip_special_tokens").value_or(false);
  fields.RefuseUnknown();
  const std::string text = tokenizer.Decode(*ids, skip_special);
  OrderedJson json;
  json["prompt"] = text;   // vLLM's name
  json["content"] = text;  // llama.cpp's
  co_await SendJson(exchange, json);
}

Task<> ApplyTemplate(ApiContext& context, HttpExchange& exchange) {
  const OrderedJson body = ParseBody(exchange);
  JsonFields fields(body, "");
  ReadModel(fields, context.options);
  ChatPromptFields prompt = ReadChatPromptFields(fields);
  prompt.chat.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
  fields.RefuseUnknown();
  const EncodedChat chat = EncodeChat(context, prompt);
  OrderedJson json;
  json["prompt"] = chat.prompt.Text();
  json["tokens"] = chat.ids;
  co_await SendJson(exchange, json);
}

}  // namespace lapidary
