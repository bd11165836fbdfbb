#include "cli/lines.h"

#include <iostream>

#include "base/error.h"

namespace lapidary {

void ForEachJsonLine(const std::function<void(const Json& value, const std::string& where)>& take) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = "line " + std::to_string(number);
    try {
      take(ParseJson(line, where), where);
    } catch (const Error& error) {
      const std::string what = error.what();
      if (error.kind() == ErrorKind::kOutOfMemory || what.starts_with(where)) throw;
      Throw(error.kind(), where + ": " + what);
    }
  }
}

}  // namespace lapidary
