#pragma once

#include <string>

namespace lapidary {

// The folder of the bundled demo model: `../share/lapidary/models/demo` from `executable` where that exists
// (installed), else `source_folder` (run from the build tree).
std::string FindDemoModel(const std::string& executable, const std::string& source_folder);

// The same for the running program and the source tree it was built from.
std::string FindDemoModel();

}  // namespace lapidary
