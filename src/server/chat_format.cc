#include "server/chat_format.h"

#include <fmt/core.h>

#include <random>
#include <utility>

#include "server/logprobs_json.h"

namespace lapidary {
namespace {

std::string FreshCallId() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return fmt::format("call_{:016x}{:08x}", engine(), engine() >> 32);
}

}  // namespace

ChatFormat::ChatFormat(ChatFormatOptions options) : options_(std::move(options)), choices_(options_.choices) {}

OrderedJson ChatFormat::EmptyChunk() const {
  OrderedJson chunk = options_.header.Begin("chat.completion.chunk");
  chunk["choices"] = OrderedJson::array();
  return chunk;
}

OrderedJson ChatFormat::Chunk(size_t choice, OrderedJson delta) const {
  OrderedJson entry;
  entry["index"] = choice;
  entry["delta"] = std::move(delta);
  entry["logprobs"] = nullptr;
  entry["finish_reason"] = nullptr;
  OrderedJson chunk = EmptyChunk();
  chunk["choices"].push_back(std::move(entry));
  return chunk;
}

// The delta of one event; null for one that shows nothing.
OrderedJson ChatFormat::DeltaOf(Choice& choice, const ChatEvent& event) {
  OrderedJson delta, call;
  switch (event.kind) {
    case ChatEventKind::kContent:
      delta["content"] = event.text;
      return delta;
    case ChatEventKind::kReasoning:
      delta["reasoning_content"] = event.text;
      return delta;
    case ChatEventKind::kCallName:
      choice.call_ids.push_back(FreshCallId());
      call["index"] = event.call;
      call["id"] = choice.call_ids.back();
      call["type"] = "function";
      call["function"] = {{"name", event.text}, {"arguments", ""}};
      break;
    case ChatEventKind::kCallArguments:
      call["index"] = event.call;
      call["function"] = {{"arguments", event.text}};
      break;
    case ChatEventKind::kCallEnd:
      return nullptr;
  }
  delta["tool_calls"] = OrderedJson::array({std::move(call)});
  return delta;
}

void ChatFormat::Chunks(size_t index, const AnswerDelta& delta, std::vector<OrderedJson>& out) {
  Choice& choice = choices_[index];
  if (!std::exchange(choice.begun, true)) {
    out.push_back(Chunk(index, {{"role", "assistant"}, {"content", ""}}));
  }
  const size_t first = out.size();
  for (const ChatEvent& event : delta.events) {
    OrderedJson shown = DeltaOf(choice, event);
    if (!shown.is_null()) out.push_back(Chunk(index, std::move(shown)));
  }
  const bool carries_ids = !delta.ids.empty() && (options_.logprobs || options_.token_ids);
  if (carries_ids) {
    // Tokens whose text is held back still have logprobs.
    if (out.size() == first) out.push_back(Chunk(index, {{"content", ""}}));
    OrderedJson& entry = out[first]["choices"][0];
    if (options_.logprobs) entry["logprobs"]["content"] = ChatLogprobs(options_.tokenizer, delta.ids, delta.logprobs);
    if (options_.token_ids) entry["token_ids"] = delta.ids;
  }
  if (!delta.end) return;
  out.push_back(Chunk(index, OrderedJson::object()));
  out.back()["choices"][0]["finish_reason"] = FinishName(*delta.end);
}

void ChatFormat::Take(size_t index, const AnswerDelta& delta) {
  Choice& choice = choices_[index];
  for (const ChatEvent& event : delta.events) {
    switch (event.kind) {
      case ChatEventKind::kContent:
        choice.content += event.text;
        break;
      case ChatEventKind::kReasoning:
        choice.reasoning += event.text;
        break;
      case ChatEventKind::kCallName:
        choice.calls.push_back({FreshCallId(), event.text, ""});
        break;
      case ChatEventKind::kCallArguments:
        choice.calls.back().arguments += event.text;
        break;
      case ChatEventKind::kCallEnd:
        break;
    }
  }
  if (options_.logprobs) {
    for (OrderedJson& token : ChatLogprobs(options_.tokenizer, delta.ids, delta.logprobs)) {
      choice.logprobs.push_back(std::move(token));
    }
  }
  choice.ids.insert(choice.ids.end(), delta.ids.begin(), delta.ids.end());
  if (delta.end) choice.end = delta.end;
}

OrderedJson ChatFormat::Message(Choice& choice) const {
  OrderedJson message;
  message["role"] = "assistant";
  const bool silent = choice.content.empty() && !choice.calls.empty();
  message["content"] = silent ? OrderedJson() : OrderedJson(std::move(choice.content));
  message["refusal"] = nullptr;
  if (!choice.reasoning.empty()) message["reasoning_content"] = std::move(choice.reasoning);
  for (Call& call : choice.calls) {
    OrderedJson shown;
    shown["id"] = std::move(call.id);
    shown["type"] = "function";
    shown["function"] = {{"name", std::move(call.name)}, {"arguments", std::move(call.arguments)}};
    message["tool_calls"].push_back(std::move(shown));
  }
  return message;
}

OrderedJson ChatFormat::Whole(const Usage& usage) {
  OrderedJson whole = options_.header.Begin("chat.completion");
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    OrderedJson entry;
    entry["index"] = i;
    entry["message"] = Message(choice);
    entry["logprobs"] = nullptr;
    if (options_.logprobs) entry["logprobs"]["content"] = std::move(choice.logprobs);
    if (options_.token_ids) entry["token_ids"] = choice.ids;
    entry["finish_reason"] = FinishName(*choice.end);
    whole["choices"].push_back(std::move(entry));
  }
  whole["usage"] = usage.Json();
  return whole;
}

}  // namespace lapidary
