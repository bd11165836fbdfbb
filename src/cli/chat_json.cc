#include "cli/chat_json.h"

#include <spdlog/spdlog.h>

#include "model/config.h"

namespace lapidary {
namespace {

void CheckObject(const OrderedJson& json, const std::string& where) {
  if (!json.is_object()) {
    Throw(ErrorKind::kInvalidArgument, where + ": found " + json.type_name() + ", wanted an object with messages");
  }
}

}  // namespace

ChatVariant ChatVariantOf(const std::string& name, const std::string& where) {
  if (name == "small") return ChatVariant::kSmall;
  if (name == "large") return ChatVariant::kLarge;
  Throw(ErrorKind::kInvalidArgument, where + ": found \"" + Printable(name) + "\", wanted small or large");
}

std::optional<ChatVariant> RequestedChatVariant(const OrderedJson& json, const std::string& where) {
  CheckObject(json, where);
  const auto found = json.find("variant");
  if (found == json.end() || found->is_null()) return std::nullopt;
  const std::string place = where + ": variant";
  return ChatVariantOf(found->is_string() ? found->get<std::string>() : found->dump(), place);
}

ChatRequest ReadChatRequest(const OrderedJson& json, const std::string& where) {
  CheckObject(json, where);
  ChatRequest request;
  if (!json.contains("messages")) Throw(ErrorKind::kInvalidArgument, where + ": found no messages, wanted an array");
  request.messages = json["messages"];
  if (json.contains("tools")) request.tools = json["tools"];
  request.enable_thinking = ReadFlag(json, "enable_thinking", request.enable_thinking, where);
  request.add_generation_prompt = ReadFlag(json, "add_generation_prompt", request.add_generation_prompt, where);
  request.preserve_thinking = ReadFlag(json, "preserve_thinking", request.preserve_thinking, where);
  return request;
}

ChatVariant ChatVariantOfModel(const std::string& folder) {
  const ChatTemplateChoice choice = ChooseChatTemplate(folder, LoadConfig(folder).hidden_size_per_layer_input > 0);
  if (!choice.warning.empty()) spdlog::warn("{}: {}", folder, choice.warning);
  return choice.variant;
}

Json AnswerJson(const ParsedAnswer& answer) {
  Json calls = Json::array();
  for (const ParsedToolCall& call : answer.tool_calls) {
    calls.push_back({{"name", call.name}, {"arguments", ParseJson(call.arguments, "arguments of " + call.name)}});
  }
  return {{"content", answer.content}, {"reasoning", answer.reasoning}, {"tool_calls", calls}};
}

}  // namespace lapidary
