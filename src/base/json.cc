#include "base/json.h"

#include "base/error.h"

namespace lapidary {

Json ParseJson(std::string_view text, const std::string& what) {
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxJsonDepth) {
      throw Error(ErrorKind::kCorruptFile,
                  what + ": found JSON nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), limit_depth);
  } catch (const Json::exception& error) {
    // The library's message repeats the input up to the fault, which may be megabytes: keep its head.
    const std::string_view detail = error.what();
    Throw(ErrorKind::kCorruptFile, what + ": not valid JSON: " + std::string(detail.substr(0, 160)));
  }
}

}  // namespace lapidary
