#include "hub/part_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace lapidary {
namespace {

constexpr size_t kMaxStateBytes = size_t{64} << 20;
constexpr int64_t kStatBlockBytes = 512;  // unit of st_blocks

struct stat StatusOf(const Descriptor& file, const std::string& path) {
  struct stat status;
  if (::fstat(file.get(), &status) != 0) ThrowFileError("cannot read", path, errno);
  return status;
}

}  // namespace

PartFile::PartFile(std::string folder, RemoteFile file, std::string commit)
    : folder_(std::move(folder)),
      file_(std::move(file)),
      identity_(file_.etag().empty() ? commit : file_.etag()),
      commit_(std::move(commit)),
      path_(folder_ + "/" + file_.name + ".part"),
      descriptor_(OpenFile(path_, O_RDWR | O_CREAT)) {
  LoadState();
  if (finished_.CoveredBytes() == 0 && ::ftruncate(descriptor_.get(), 0) != 0) {
    ThrowFileError("cannot truncate", path_, errno);
  }
}

void PartFile::LoadState() {
  try {
    if (StatusOf(descriptor_, path_).st_size == file_.size) ReadState(ReadFile(StatePath(), kMaxStateBytes));
  } catch (const Error&) {
    finished_.Clear();  // none, or not ours to read: starts from nothing
  } catch (const Json::exception&) {
    finished_.Clear();
  }
}

void PartFile::ReadState(const std::string& text) {
  const Json state = ParseJson(text, StatePath());
  if (state.at("etag").get<std::string>() != identity_ || state.at("size").get<int64_t>() != file_.size) return;
  for (const Json& range : state.at("finished")) {
    const ByteRange bytes{range.at(0).get<int64_t>(), range.at(1).get<int64_t>()};
    if (bytes.begin < 0 || bytes.end > file_.size) Throw(ErrorKind::kCorruptFile, StatePath() + ": range outside");
    finished_.Add(bytes);
  }
}

int64_t PartFile::BytesToAllocate() const {
  const int64_t taken = static_cast<int64_t>(StatusOf(descriptor_, path_).st_blocks) * kStatBlockBytes;
  return std::max<int64_t>(0, file_.size - taken);
}

void PartFile::Allocate() {
  if (file_.size == 0) return;
  const int code = ::posix_fallocate(descriptor_.get(), 0, file_.size);
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    Throw(ErrorKind::kOutOfMemory,
          fmt::format("no space for {}: wanted {} bytes: {}", path_, file_.size, std::strerror(code)));
  }
  if (code != 0) ThrowFileError("cannot reserve space for", path_, code);
}

void PartFile::Write(int64_t offset, std::string_view bytes) {
  WriteAt(descriptor_.get(), bytes.data(), bytes.size(), offset, path_);
  const std::lock_guard lock(mutex_);
  finished_.Add({offset, offset + static_cast<int64_t>(bytes.size())});
}

int64_t PartFile::CoveredBytes() const {
  const std::lock_guard lock(mutex_);
  return finished_.CoveredBytes();
}

std::vector<ByteRange> PartFile::Missing() const {
  const std::lock_guard lock(mutex_);
  return finished_.Missing(file_.size);
}

void PartFile::SaveState() {
  const std::lock_guard save_lock(save_mutex_);
  Json finished = Json::array();
  {
    const std::lock_guard lock(mutex_);
    for (const ByteRange& range : finished_.Ranges()) finished.push_back({range.begin, range.end});
  }
  const Json state = {{"etag", identity_}, {"commit", commit_}, {"size", file_.size}, {"finished", finished}};
  WriteFileAtomically(StatePath(), state.dump() + "\n");
}

void PartFile::Reset() {
  {
    const std::lock_guard lock(mutex_);
    finished_.Clear();
  }
  ::unlink(StatePath().c_str());
}

void PartFile::Publish() {
  if (::fsync(descriptor_.get()) != 0) ThrowFileError("cannot write", path_, errno);
  const std::string final_path = folder_ + "/" + file_.name;
  if (std::rename(path_.c_str(), final_path.c_str()) != 0) ThrowFileError("cannot rename", path_, errno);
  ::unlink(StatePath().c_str());
  SyncFolder(folder_);
}

void PartFile::Delete() {
  ::unlink(path_.c_str());
  ::unlink(StatePath().c_str());
}

}  // namespace lapidary
