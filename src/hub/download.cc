#include "hub/download.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/downloader.h"
#include "hub/folder_lock.h"
#include "hub/listing.h"
#include "hub/part_file.h"
#include "hub/url.h"
#include "hub/verify.h"
#include "hub/workers.h"

namespace lapidary {
namespace {

using Parts = std::vector<std::unique_ptr<PartFile>>;

void CheckNumber(const char* name, int64_t found, int64_t low, int64_t high) {
  if (found < low || found > high) {
    Throw(ErrorKind::kInvalidArgument, fmt::format("found {} {}, wanted {} to {}", name, found, low, high));
  }
}

void CheckOptions(const PullOptions& options) {
  CheckRepository(options.repository);
  CheckRevision(options.revision);
  if (options.folder.empty()) Throw(ErrorKind::kInvalidArgument, "found no folder to download into");
  CheckNumber("connections", options.connections, 1, 64);
  CheckNumber("range_bytes", options.range_bytes, int64_t{64} << 10, int64_t{1} << 40);
  CheckNumber("retries", options.retries, 0, 100);
  CheckNumber("first_wait_ms", options.first_wait_ms, 1, 60'000);
  CheckNumber("stall_seconds", options.stall_seconds, 1, 3600);
  if (!std::ranges::all_of(options.token, [](char c) { return c > ' ' && c < 0x7f; })) {
    Throw(ErrorKind::kInvalidArgument, "found a token with blanks or control characters, wanted printable ASCII");
  }
}

// After a failure, which matters more than one of saving.
void SaveIfUnderWay(PartFile& part) {
  try {
    if (part.CoveredBytes() > 0 && std::filesystem::exists(part.path())) part.SaveState();
  } catch (const Error&) {
    return;  // another run fetches again what this one had
  }
}

// One download from its listing to the last file.
class PullRun {
 public:
  PullRun(const PullOptions& options, const ProgressFn& progress);
  void Run();

 private:
  void List();
  std::vector<RemoteFile> FindMissing();
  Parts OpenParts(const std::vector<RemoteFile>& files);
  void Reserve(const Parts& parts);
  void Fetch(const Parts& parts);
  void Report(std::string_view stage, uint64_t done, uint64_t total);

  const PullOptions& options_;
  const ProgressFn& progress_;
  StopFlag stop_;
  DownloadOptions download_;
  std::vector<RemoteFile> files_;
  uint64_t total_bytes_ = 0;  // of files_
};

PullRun::PullRun(const PullOptions& options, const ProgressFn& progress) : options_(options), progress_(progress) {
  const std::string endpoint = CleanEndpoint(options.endpoint);
  download_.address = {endpoint, options.repository, options.revision};
  download_.http = {endpoint, options.token, options.stall_seconds};
  download_.retry = {options.retries, std::chrono::milliseconds(options.first_wait_ms)};
  download_.range_bytes = options.range_bytes;
}

void PullRun::Report(std::string_view stage, uint64_t done, uint64_t total) {
  if (progress_) progress_(stage, done, total);
}

void PullRun::Run() {
  // A folder that is there is locked at once; one that is not is made only when there is something to put into it.
  std::error_code unreadable;
  std::optional<FolderLock> lock;
  if (std::filesystem::exists(options_.folder, unreadable)) lock.emplace(options_.folder);
  List();
  if (!lock) lock.emplace(options_.folder);
  const std::vector<RemoteFile> missing = FindMissing();
  const Parts parts = OpenParts(missing);
  try {
    Reserve(parts);
  } catch (const Error&) {
    for (const auto& part : parts) {
      if (part->CoveredBytes() == 0) part->Delete();
    }
    throw;
  }
  Fetch(parts);
}

void PullRun::List() {
  const auto list = [&] {
    HttpClient client(download_.http, stop_);
    Listing listing(client, download_.retry, stop_, !options_.token.empty());
    download_.address.revision = listing.ResolveCommit(download_.address);
    files_ = listing.WantedFiles(download_.address);
  };
  RunWorkers(1, stop_, list, [&] { Report("listing", 0, 0); });
  // Small files first: a model folder becomes readable before its weights are there.
  std::ranges::stable_sort(files_, {}, &RemoteFile::size);
  for (const RemoteFile& file : files_) {
    if (static_cast<uint64_t>(file.size) > UINT64_MAX / 4 - total_bytes_) {
      Throw(ErrorKind::kCorruptFile, fmt::format("{}: found absurd sizes", download_.address.Describe()));
    }
    total_bytes_ += static_cast<uint64_t>(file.size);
  }
}

// The files that are not there with the right content.
std::vector<RemoteFile> PullRun::FindMissing() {
  std::vector<char> is_there(files_.size(), 0);
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> read_bytes = 0;
  const auto path = [&](const RemoteFile& file) { return options_.folder + "/" + file.name; };
  uint64_t bytes_there = 0;
  for (const RemoteFile& file : files_) {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(path(file), error);
    if (!error && size == static_cast<uint64_t>(file.size)) bytes_there += size;
  }
  const auto check = [&] {
    for (size_t i = next++; i < files_.size(); i = next++) {
      if (!std::filesystem::is_regular_file(path(files_[i]))) continue;
      is_there[i] = FindDifference(path(files_[i]), files_[i], read_bytes, stop_).empty();
    }
  };
  RunWorkers(options_.connections, stop_, check, [&] {
    if (bytes_there > 0) Report("checking", read_bytes.load(), bytes_there);
  });
  std::vector<RemoteFile> missing;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (is_there[i] == 0) missing.push_back(files_[i]);
  }
  return missing;
}

Parts PullRun::OpenParts(const std::vector<RemoteFile>& files) {
  Parts parts;
  for (const RemoteFile& file : files) {
    parts.push_back(std::make_unique<PartFile>(options_.folder, file, download_.address.revision));
  }
  return parts;
}

void PullRun::Reserve(const Parts& parts) {
  struct statvfs disk;
  if (::statvfs(options_.folder.c_str(), &disk) != 0) ThrowFileError("cannot read", options_.folder, errno);
  const uint64_t available = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  uint64_t needed = 0;
  for (const auto& part : parts) needed += static_cast<uint64_t>(part->BytesToAllocate());
  if (needed > available) {
    Throw(ErrorKind::kOutOfMemory, fmt::format("no space in {} for {}: found {} bytes available, wanted {}",
                                               options_.folder, options_.repository, available, needed));
  }
  for (const auto& part : parts) {
    stop_.Check();
    part->Allocate();
  }
}

void PullRun::Fetch(const Parts& parts) {
  if (parts.empty()) return;
  Downloader downloader(download_, parts, stop_);
  uint64_t wanted_bytes = 0;
  for (const auto& part : parts) wanted_bytes += static_cast<uint64_t>(part->file().size);
  const uint64_t bytes_there = total_bytes_ - wanted_bytes;
  uint64_t reported = UINT64_MAX;
  const auto poll = [&] {
    const uint64_t received = downloader.ReceivedBytes();
    if (received != reported || received < wanted_bytes) Report("downloading", bytes_there + received, total_bytes_);
    if (received == wanted_bytes) Report("verifying", downloader.VerifiedBytes(), wanted_bytes);
    reported = received;
  };
  try {
    RunWorkers(
        options_.connections, stop_, [&] { downloader.Work(); }, poll);
  } catch (...) {
    for (const auto& part : parts) SaveIfUnderWay(*part);
    throw;
  }
  poll();
}

}  // namespace

void Pull(const PullOptions& options, const ProgressFn& progress) {
  CheckOptions(options);
  PullRun(options, progress).Run();
}

}  // namespace lapidary
