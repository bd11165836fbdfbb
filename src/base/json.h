#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lapidary {

using Json = nlohmann::json;

// Deepest nesting accepted from foreign JSON.
inline constexpr int kMaxJsonDepth = 128;

// Parses foreign JSON. `what` names the file or field in errors. Throws Error kCorruptFile: not JSON, nested deeper
// than kMaxJsonDepth, not UTF-8, or a key twice in one object. Meant for small texts (config, header, index); the
// tokenizer uses simdjson.
Json ParseJson(std::string_view text, const std::string& what);

// `text` as one printable line for error messages: at most `limit` bytes, control characters and broken UTF-8 replaced.
std::string Printable(std::string_view text, size_t limit = 120);

}  // namespace lapidary
