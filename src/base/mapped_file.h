#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lapidary {

// A whole file mapped read-only. Move-only; spans stay valid until destruction, also after a move.
// Any thread may read. If the file is truncated by someone else while mapped, reading past its new end raises SIGBUS:
// the engine does not defend against that.
class MappedFile {
 public:
  // Throws Error: kNotFound (no such file), kInvalidArgument (a folder, not readable), kOutOfMemory (mapping refused).
  static MappedFile Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  const std::string& path() const { return path_; }

  // Asks the system to map and read the given part now, so that the first pass over it does not fault page by page.
  // `part` lies inside bytes(). A hint: failure is ignored.
  void Populate(std::span<const std::byte> part) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  std::string path_;
};

// The whole file as a string. Throws Error like MappedFile::Open; kInvalidArgument when larger than `limit_bytes`.
std::string ReadFile(const std::string& path, size_t limit_bytes = size_t{1} << 30);

}  // namespace lapidary
