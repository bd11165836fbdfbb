#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lapidary {
namespace {

// An open descriptor of a regular file that closes itself.
class Descriptor {
 public:
  // Non-blocking, so that a named pipe is refused below instead of waited for.
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) {
      const int code = errno;
      const bool missing = code == ENOENT || code == ENOTDIR;
      Throw(missing ? ErrorKind::kNotFound : ErrorKind::kInvalidArgument,
            "cannot open " + path + ": " + std::strerror(code));
    }
    struct stat status;
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd_);
      Throw(ErrorKind::kInvalidArgument, "cannot read " + path + ": found something that is not a regular file");
    }
    size_bytes_ = static_cast<size_t>(status.st_size);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }

  int get() const { return fd_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  int fd_;
  size_t size_bytes_ = 0;
};

}  // namespace

MappedFile MappedFile::Open(const std::string& path) {
  const Descriptor file(path);
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_bytes_ = file.size_bytes();
  if (mapped.size_bytes_ == 0) return mapped;
  void* data = ::mmap(nullptr, mapped.size_bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    mapped.size_bytes_ = 0;
    Throw(ErrorKind::kOutOfMemory, "cannot map " + path + ": " + std::strerror(code));
  }
  mapped.data_ = static_cast<const std::byte*>(data);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

void MappedFile::Populate(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(part.data()) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data()) + part.size();
  // File systems with large folios then read in pages of 2 MB, which costs far fewer address translations.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
}

std::string ReadFile(const std::string& path, size_t limit_bytes) {
  const Descriptor file(path);
  if (file.size_bytes() > limit_bytes) {
    Throw(ErrorKind::kInvalidArgument, "cannot read " + path + ": found " + std::to_string(file.size_bytes()) +
                                           " bytes, wanted at most " + std::to_string(limit_bytes));
  }
  std::string text(file.size_bytes(), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Throw(ErrorKind::kInvalidArgument, "cannot read " + path + ": " + std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace lapidary
