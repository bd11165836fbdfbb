#include "server/endpoints.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/json.h"

namespace lapidary {

OrderedJson ParseBody(const HttpExchange& exchange) {
  OrderedJson body;
  try {
    body = ParseOrderedJson(exchange.request().body, "request body");
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "invalid_json");
  }
  if (!body.is_object())
    throw ApiError(400, "request body: found " + Found(body) + ", wanted an object", "", "invalid_json");
  return body;
}

Task<> SendJson(HttpExchange& exchange, const OrderedJson& json) {
  HttpReply reply;
  reply.body = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  co_await exchange.Send(std::move(reply));
}

std::string ReadModel(JsonFields& fields, const ServerOptions& options) {
  const std::optional<std::string> name = fields.String("model");
  if (!name) return options.model_names.front();
  if (std::find(options.model_names.begin(), options.model_names.end(), *name) == options.model_names.end()) {
    throw ApiError(404, "The model `" + Printable(*name) + "` does not exist.", "model", "model_not_found");
  }
  return *name;
}

SamplingLimits LimitsOf(const ApiContext& context) {
  return {.vocab = context.service.model().vocab(),
          .max_choices = std::min<int64_t>(128, context.service.capacity()),
          .speculation = context.options.speculation};
}

void RefuseWhileDraining(const ApiContext& context) {
  if (!context.state.draining) return;
  throw ApiError(503, "the server is shutting down", "", "shutting_down", 1);
}

void CheckContext(const ApiContext& context, size_t prompt_tokens, const char* param) {
  const auto most = static_cast<size_t>(context.service.engine_options().max_context);
  if (prompt_tokens < most) return;
  throw ApiError(400,
                 "This model's maximum context length is " + std::to_string(most) +
                     " tokens. However, your request has a prompt of " + std::to_string(prompt_tokens) +
                     " tokens, which leaves no room for an answer.",
                 param, "context_length_exceeded");
}

AnswerHeader MakeHeader(const HttpExchange& exchange, const char* prefix, std::string model) {
  return {.id = prefix + exchange.request().id, .model = std::move(model), .created_unix_s = std::time(nullptr)};
}

EncodedChat EncodeChat(const ApiContext& context, const ChatPromptFields& fields) {
  const Tokenizer& tokenizer = context.service.model().RequireTokenizer("to read a chat");
  EncodedChat chat;
  try {
    chat.prompt = context.chat_template.Render(fields.chat);
    if (fields.forces_call) chat.forced_opening = ForceToolCall(chat.prompt, fields.forced_name);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "messages", "invalid_value");
  }
  chat.ids = EncodePrompt(tokenizer, chat.prompt, context.options.special_text);
  return chat;
}

Task<> Models(ApiContext& context, HttpExchange& exchange) {
  OrderedJson list = OrderedJson::array();
  for (const std::string& name : context.options.model_names) {
    OrderedJson model;
    model["id"] = name;
    model["object"] = "model";
    model["created"] = context.started_unix_s;
    model["owned_by"] = "lapidary";
    model["max_model_len"] = context.service.engine_options().max_context;
    list.push_back(std::move(model));
  }
  constexpr std::string_view kList = "/v1/models";
  const std::string& path = exchange.request().path;
  if (path == kList) {
    OrderedJson all;
    all["object"] = "list";
    all["data"] = std::move(list);
    co_await SendJson(exchange, all);
    co_return;
  }
  const std::string name = path.substr(kList.size() + 1);
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const OrderedJson& model) { return model["id"] == name; });
  if (found == list.end()) {
    throw ApiError(404, "The model `" + Printable(name) + "` does not exist.", "model", "model_not_found");
  }
  co_await SendJson(exchange, *found);
}

Task<> Health(ApiContext& context, HttpExchange& exchange) {
  const bool draining = context.state.draining;
  HttpReply reply;
  reply.status = draining ? 503 : 200;
  reply.body = draining ? R"({"status":"draining"})" : R"({"status":"ok"})";
  co_await exchange.Send(std::move(reply));
}

Task<> ShowMetrics(ApiContext& context, HttpExchange& exchange) {
  HttpReply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = context.metrics.Text(context.service.counters(), context.service.live(), context.state.connections);
  co_await exchange.Send(std::move(reply));
}

}  // namespace lapidary
