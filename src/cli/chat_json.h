#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "chat/chat_parser.h"
#include "chat/chat_template.h"

namespace lapidary {

// JSON of the commands template, parse and chat. All throw Error kInvalidArgument naming `where`, found and wanted.

// A member that is true or false, or missing; of a Json or an OrderedJson.
template <typename AnyJson>
bool ReadFlag(const AnyJson& json, const char* key, bool otherwise, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end()) return otherwise;
  if (!found->is_boolean()) {
    Throw(ErrorKind::kInvalidArgument, where + ": " + key + ": found " + found->type_name() + ", wanted true or false");
  }
  return found->template get<bool>();
}

// "small" or "large".
ChatVariant ChatVariantOf(const std::string& name, const std::string& where);
// The variant that the request names, if it does.
std::optional<ChatVariant> RequestedChatVariant(const OrderedJson& json, const std::string& where);
// {"messages", "tools", "enable_thinking", "add_generation_prompt", "preserve_thinking"}, all but messages optional.
ChatRequest ReadChatRequest(const OrderedJson& json, const std::string& where);

// The variant of a model folder; says so in the log when its template is not one that is known.
ChatVariant ChatVariantOfModel(const std::string& folder);

// {"content", "reasoning", "tool_calls": [{"name", "arguments"}]}, arguments as an object.
Json AnswerJson(const ParsedAnswer& answer);

}  // namespace lapidary
