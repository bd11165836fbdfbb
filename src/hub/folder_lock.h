#pragma once

#include <string>

#include "hub/descriptor.h"

namespace lapidary {

// Holds a folder for one download at a time, across processes; ends with the process at the latest. The lock file is
// there only while it is held.
class FolderLock {
 public:
  // Makes the folder if missing. Throws Error kInvalidArgument: it cannot be made or written, or another holds it.
  explicit FolderLock(const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::string path_;
  Descriptor file_;
};

}  // namespace lapidary
