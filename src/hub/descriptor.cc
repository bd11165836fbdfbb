#include "hub/descriptor.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace lapidary {

Descriptor OpenFile(const std::string& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.is_open()) ThrowFileError("cannot open", path, errno);
  return file;
}

void ThrowFileError(const std::string& what, const std::string& path, int code) {
  const bool full = code == ENOSPC || code == EDQUOT;
  Throw(full ? ErrorKind::kOutOfMemory : ErrorKind::kInvalidArgument, what + " " + path + ": " + std::strerror(code));
}

void WriteAt(int fd, const char* data, size_t size, off_t offset, const std::string& path) {
  while (size > 0) {
    const ssize_t written = ::pwrite(fd, data, size, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ThrowFileError("cannot write", path, written < 0 ? errno : ENOSPC);
    data += written;
    size -= static_cast<size_t>(written);
    offset += written;
  }
}

void WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string draft = path + ".tmp";
  {
    const Descriptor file = OpenFile(draft, O_WRONLY | O_CREAT | O_TRUNC);
    WriteAt(file.get(), text.data(), text.size(), 0, draft);
    if (::fdatasync(file.get()) != 0) ThrowFileError("cannot write", draft, errno);
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) ThrowFileError("cannot rename", draft, errno);
}

void SyncFolder(const std::string& folder) {
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder and say EINVAL.
  if (!directory.is_open() || (::fsync(directory.get()) != 0 && errno != EINVAL)) {
    ThrowFileError("cannot sync", folder, errno);
  }
}

}  // namespace lapidary
