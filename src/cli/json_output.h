#pragma once

#include <string>

#include "base/json.h"

namespace lapidary {

// JSON on one line, or indented. Bytes that are not UTF-8 become U+FFFD, numbers that are not finite null.
std::string ToText(const Json& json, int indent = -1);

}  // namespace lapidary
