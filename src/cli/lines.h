#pragma once

#include <functional>
#include <string>

#include "base/json.h"

namespace lapidary {

// Calls `take(value, where)` for each line of standard input as it comes; blank lines are passed over. `where` names
// the line in errors; those that `take` throws without it get it in front. Throws Error kCorruptFile when a line is not
// JSON.
void ForEachJsonLine(const std::function<void(const Json& value, const std::string& where)>& take);

}  // namespace lapidary
