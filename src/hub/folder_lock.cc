#include "hub/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace lapidary {
namespace {

// Whether `path` still names the open file: its last holder may have removed it between our open and our lock.
bool Names(const std::string& path, int fd) {
  struct stat by_path, by_fd;
  return ::stat(path.c_str(), &by_path) == 0 && ::fstat(fd, &by_fd) == 0 && by_path.st_ino == by_fd.st_ino &&
         by_path.st_dev == by_fd.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(folder + "/.lapidary-pull.lock") {
  if (folder.empty()) Throw(ErrorKind::kInvalidArgument, "found no folder to download into");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    Throw(ErrorKind::kInvalidArgument,
          "cannot make folder " + folder + ": " + (error ? error.message() : "it is not a folder"));
  }
  do {
    file_ = OpenFile(path_, O_RDWR | O_CREAT);
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) Throw(ErrorKind::kInvalidArgument, "another download is at work in folder " + folder);
      ThrowFileError("cannot lock", path_, errno);
    }
  } while (!Names(path_, file_.get()));
}

FolderLock::~FolderLock() { ::unlink(path_.c_str()); }

}  // namespace lapidary
