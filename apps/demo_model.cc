#include "demo_model.h"

#include <filesystem>
#include <system_error>

namespace lapidary {

namespace fs = std::filesystem;

std::string FindDemoModel(const std::string& executable, const std::string& source_folder) {
  const fs::path installed = fs::path(executable).parent_path().parent_path() / "share/lapidary/models/demo";
  std::error_code ignored;
  return fs::exists(installed / "config.json", ignored) ? installed.string() : source_folder;
}

std::string FindDemoModel() {
  std::error_code ignored;  // without /proc the path is empty and the source tree's model is taken
  return FindDemoModel(fs::read_symlink("/proc/self/exe", ignored).string(), LAPIDARY_DEMO_MODEL_DIR);
}

}  // namespace lapidary
