#include "cli/json_output.h"

namespace lapidary {

std::string ToText(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lapidary
