#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lapidary {

// JSON whose objects keep the order of their keys: the template sorts keys without regard to case, and keys that differ
// in nothing else stay in the order they came in. A Json converts to it by itself (its keys are in byte order then).
using OrderedJson = nlohmann::ordered_json;

// As ParseJson of base/json.h, in time linear in the text. Throws Error kCorruptFile: not JSON, nested deeper than
// kMaxJsonDepth, not UTF-8, a zero byte, or a key twice in one object.
OrderedJson ParseOrderedJson(std::string_view text, const std::string& what);

}  // namespace lapidary
