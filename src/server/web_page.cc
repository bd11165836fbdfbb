#include "server/web_page.h"

#include <algorithm>
#include <span>

namespace lapidary {

// Generated from web/ by CMake.
std::span<const WebFile> EmbeddedWebFiles();

const WebFile* FindWebFile(std::string_view path) {
  const std::span<const WebFile> files = EmbeddedWebFiles();
  const auto found = std::find_if(files.begin(), files.end(), [&](const WebFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

}  // namespace lapidary
