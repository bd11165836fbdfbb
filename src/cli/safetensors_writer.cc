#include "cli/safetensors_writer.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/json.h"

namespace lapidary {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

namespace fs = std::filesystem;

// The file that a link leads to, there or not: it is replaced, not the link.
fs::path BehindLinks(fs::path path) {
  std::error_code error;
  for (int links = 0; links < 40 && fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    path = path.parent_path() / fs::read_symlink(path, error);  // an absolute target replaces the whole path
  }
  return path;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<OutputTensor>& tensors)
    : path_(path), final_path_(BehindLinks(path).string()), part_path_(final_path_ + ".part") {
  std::error_code ignored;
  const fs::file_status status = fs::status(final_path_, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    Throw(ErrorKind::kInvalidArgument,
          path + ": cannot write: found something that is not a regular file, wanted a file or a new name");
  }
  Json header = Json::object();
  int64_t end = 0;
  for (const OutputTensor& tensor : tensors) {
    int64_t bytes = sizeof(float);
    for (const int64_t size : tensor.shape) bytes *= size;
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
    offsets_.push_back(end);
    end += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  for (int64_t& offset : offsets_) offset += static_cast<int64_t>(sizeof(uint64_t) + text.size());
  errno = 0;
  file_.open(part_path_, std::ios::binary | std::ios::trunc);
  if (!file_) {
    Throw(ErrorKind::kInvalidArgument, path + ": cannot write: " + std::strerror(errno));
  }
  const uint64_t header_bytes = text.size();
  file_.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file_.write(text.data(), static_cast<std::streamsize>(text.size()));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (finished_) return;
  file_.close();
  std::error_code ignored;
  fs::remove(part_path_, ignored);
}

void SafetensorsWriter::Write(size_t tensor, int64_t first, std::span<const float> values) {
  file_.seekp(offsets_[tensor] + first * static_cast<int64_t>(sizeof(float)));
  file_.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
}

void SafetensorsWriter::Finish() {
  errno = 0;
  file_.close();
  std::error_code error;
  if (file_) fs::rename(part_path_, final_path_, error);
  if (!file_ || error) {
    Throw(ErrorKind::kOutOfMemory, path_ + ": cannot write: " + (error ? error.message() : std::strerror(errno)));
  }
  finished_ = true;
}

}  // namespace lapidary
