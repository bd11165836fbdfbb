#include "server/chat_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "server/api_error.h"
#include "server/json_fields.h"

namespace lapidary {
namespace {

const OrderedJson* Find(const OrderedJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void CheckObject(const OrderedJson& value, const std::string& place) {
  if (!value.is_object()) RefuseField(place, Found(value), "an object");
}

const std::string& RequireString(const OrderedJson& object, const char* name, const std::string& place) {
  const OrderedJson* value = Find(object, name);
  if (!value || !value->is_string()) {
    RefuseField(place + "." + name, value ? Found(*value) : "none", "a string");
  }
  return value->get_ref<const std::string&>();
}

void OptionalString(const OrderedJson& object, const char* name, const std::string& place) {
  if (Find(object, name)) RequireString(object, name, place);
}

void CheckPart(const OrderedJson& part, const std::string& place) {
  CheckObject(part, place);
  const std::string& type = RequireString(part, "type", place);
  if (type != "text") {
    throw ApiError(
        400,
        place + ": found a part of type " + Found(OrderedJson(type)) + ", wanted text: this server reads text only",
        place, "unsupported_content");
  }
  RequireString(part, "text", place);
}

void CheckContent(const OrderedJson& message, const std::string& place, bool may_be_absent) {
  const OrderedJson* content = Find(message, "content");
  if (!content && may_be_absent) return;
  if (content && content->is_string()) return;
  if (!content || !content->is_array()) {
    RefuseField(place + ".content", content ? Found(*content) : "none", "a string or an array of text parts");
  }
  for (size_t i = 0; i < content->size(); ++i) CheckPart((*content)[i], fmt::format("{}.content[{}]", place, i));
}

// Of the calls that a tool message may answer.
using CallIds = std::set<std::string>;

void CheckCalls(const OrderedJson& calls, const std::string& place, CallIds& ids) {
  if (!calls.is_array()) RefuseField(place, Found(calls), "an array");
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", place, i);
    CheckObject(calls[i], at);
    if (const OrderedJson* type = Find(calls[i], "type"); type && *type != "function") {
      RefuseField(at + ".type", Found(*type), "function");
    }
    const OrderedJson* function = Find(calls[i], "function");
    if (!function) RefuseField(at + ".function", "none", "an object");
    CheckObject(*function, at + ".function");
    if (RequireString(*function, "name", at + ".function").empty()) {
      RefuseField(at + ".function.name", "an empty name", "at least one character");
    }
    const OrderedJson* arguments = Find(*function, "arguments");
    if (arguments && !arguments->is_string() && !arguments->is_object()) {
      RefuseField(at + ".function.arguments", Found(*arguments), "a string that holds a JSON object");
    }
    OptionalString(calls[i], "id", at);
    if (const OrderedJson* id = Find(calls[i], "id")) ids.insert(id->get<std::string>());
  }
}

void CheckToolMessage(const OrderedJson& message, const std::string& place, bool after_calls, const CallIds& ids) {
  if (!after_calls) RefuseField(place, "a tool message", "it behind an assistant message with tool_calls");
  OptionalString(message, "name", place);
  const OrderedJson* id = Find(message, "tool_call_id");
  if (!id) {
    if (!Find(message, "name")) RefuseField(place + ".tool_call_id", "none", "the id of a call");
    return;
  }
  if (!id->is_string() || !ids.contains(id->get_ref<const std::string&>())) {
    RefuseField(place + ".tool_call_id", Found(*id), "the id of one of the calls before it");
  }
}

void CheckAssistant(const OrderedJson& message, const std::string& place, CallIds& ids, bool& after_calls) {
  OptionalString(message, "reasoning_content", place);
  OptionalString(message, "reasoning", place);
  ids.clear();
  after_calls = false;
  if (const OrderedJson* calls = Find(message, "tool_calls")) {
    CheckCalls(*calls, place + ".tool_calls", ids);
    after_calls = !calls->empty();
  }
  if (Find(message, "function_call")) RefuseField(place + ".function_call", "it", "tool_calls instead");
  if (Find(message, "audio")) RefuseField(place + ".audio", "it", "text only");
  const bool says_otherwise = after_calls || Find(message, "reasoning_content") || Find(message, "reasoning");
  CheckContent(message, place, says_otherwise);
}

}  // namespace

void CheckMessages(const OrderedJson& messages) {
  if (!messages.is_array() || messages.empty()) RefuseField("messages", Found(messages), "an array of at least one");
  CallIds ids;
  bool after_calls = false;  // tool messages may follow
  for (size_t i = 0; i < messages.size(); ++i) {
    const OrderedJson& message = messages[i];
    const std::string place = fmt::format("messages[{}]", i);
    CheckObject(message, place);
    const std::string& role = RequireString(message, "role", place);
    if (role == "tool") {
      CheckToolMessage(message, place, after_calls, ids);
      CheckContent(message, place, false);
    } else if (role == "assistant") {
      CheckAssistant(message, place, ids, after_calls);
    } else if (role == "user" || role == "system" || role == "developer") {
      CheckContent(message, place, false);
      after_calls = false;
    } else {
      RefuseField(place + ".role", Found(OrderedJson(role)), "system, developer, user, assistant or tool");
    }
  }
}

std::vector<std::string> CheckTools(const OrderedJson& tools) {
  if (!tools.is_array()) RefuseField("tools", Found(tools), "an array");
  std::vector<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = fmt::format("tools[{}]", i);
    CheckObject(tools[i], place);
    if (RequireString(tools[i], "type", place) != "function") {
      RefuseField(place + ".type", Found(tools[i]["type"]), "function");
    }
    const OrderedJson* function = Find(tools[i], "function");
    if (!function) RefuseField(place + ".function", "none", "an object");
    CheckObject(*function, place + ".function");
    const std::string& name = RequireString(*function, "name", place + ".function");
    const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/'; };
    if (name.empty() || name.size() > 256 || !std::all_of(name.begin(), name.end(), plain)) {
      RefuseField(place + ".function.name", Found(OrderedJson(name)), "1 to 256 letters, digits, _, -, . or /");
    }
    OptionalString(*function, "description", place + ".function");
    if (const OrderedJson* parameters = Find(*function, "parameters"))
      CheckObject(*parameters, place + ".function.parameters");
    names.push_back(name);
  }
  return names;
}

}  // namespace lapidary
