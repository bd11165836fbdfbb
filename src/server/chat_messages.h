#pragma once

#include <string>
#include <vector>

#include "chat/ordered_json.h"

namespace lapidary {

// Checks `messages` of a chat request, which the template would take in silence: roles, content, calls and their
// results, text alone. Throws ApiError 400 naming the place.
void CheckMessages(const OrderedJson& messages);

// Checks `tools`: functions, with a name each. Returns the names. Throws ApiError 400 naming the place.
std::vector<std::string> CheckTools(const OrderedJson& tools);

}  // namespace lapidary
