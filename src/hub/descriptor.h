#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace lapidary {

// An open file descriptor that closes itself. Move-only.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// open(2) of a file in the download folder, closed on exec and never through a symbolic link; mode 0644 when made.
// Throws Error kInvalidArgument, kOutOfMemory when the disk is full.
Descriptor OpenFile(const std::string& path, int flags);

// Throws an Error for a failed call on a file: kOutOfMemory when the disk or quota is full, else kInvalidArgument.
[[noreturn]] void ThrowFileError(const std::string& what, const std::string& path, int code);

// All of `size` bytes at `offset`. Throws like ThrowFileError.
void WriteAt(int fd, const char* data, size_t size, off_t offset, const std::string& path);

// Replaces `path` by a file with this text: readers and a crash see the old file or the new one, never a mixture.
void WriteFileAtomically(const std::string& path, const std::string& text);

// Makes renames and removals in the folder durable.
void SyncFolder(const std::string& folder);

}  // namespace lapidary
