#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lapidary {

using Json = nlohmann::json;

// Deepest nesting accepted from foreign JSON.
inline constexpr int kMaxJsonDepth = 128;

// Parses foreign JSON. `what` names the file or field in errors. Throws Error kCorruptFile: not JSON, nested deeper than
// kMaxJsonDepth, or not UTF-8. Meant for small texts (config, header, index); the tokenizer uses simdjson.
Json ParseJson(std::string_view text, const std::string& what);

}  // namespace lapidary
