#pragma once

#include <string>

#include "base/mapped_file.h"
#include "chat/ordered_json.h"

namespace lapidary {

// tests/data/<name> as JSON.
inline OrderedJson ReadTestData(const std::string& name) {
  const std::string path = std::string(LAPIDARY_SOURCE_DIR "/tests/data/") + name;
  return ParseOrderedJson(ReadFile(path), name);
}

}  // namespace lapidary
