#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generation/chat_prompt.h"
#include "server/answer_format.h"
#include "server/api.h"
#include "server/chat_request.h"
#include "server/json_fields.h"

namespace lapidary {

// One for each route. All throw ApiError, or Error, for what the client shall be told.
Task<> ChatCompletions(ApiContext& context, HttpExchange& exchange);
Task<> Completions(ApiContext& context, HttpExchange& exchange);
Task<> Tokenize(ApiContext& context, HttpExchange& exchange);
Task<> Detokenize(ApiContext& context, HttpExchange& exchange);
Task<> ApplyTemplate(ApiContext& context, HttpExchange& exchange);
Task<> Models(ApiContext& context, HttpExchange& exchange);
Task<> Health(ApiContext& context, HttpExchange& exchange);
Task<> ShowMetrics(ApiContext& context, HttpExchange& exchange);

// What they share.

// The request's body, a JSON object. Throws ApiError 400.
OrderedJson ParseBody(const HttpExchange& exchange);
Task<> SendJson(HttpExchange& exchange, const OrderedJson& json);
// Throws ApiError 404 for a `model` that is not served here; returns the name to answer with.
std::string ReadModel(JsonFields& fields, const ServerOptions& options);
SamplingLimits LimitsOf(const ApiContext& context);
// Throws ApiError 503 while the server is shutting down.
void RefuseWhileDraining(const ApiContext& context);
// Throws ApiError 400 with the code context_length_exceeded for a prompt that leaves no room for an answer.
void CheckContext(const ApiContext& context, size_t prompt_tokens, const char* param);
AnswerHeader MakeHeader(const HttpExchange& exchange, const char* prefix, std::string model);

// A chat request's prompt.
struct EncodedChat {
  ChatPrompt prompt;
  std::string forced_opening;
  std::vector<int32_t> ids;
};
EncodedChat EncodeChat(const ApiContext& context, const ChatPromptFields& fields);

}  // namespace lapidary
