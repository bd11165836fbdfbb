#include "hub/downloader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "hub/verify.h"

namespace lapidary {
namespace {

// An attempt that moved at least this much was no failure worth counting.
constexpr int64_t kProgressBytes = int64_t{1} << 20;
constexpr std::chrono::milliseconds kStopCheckInterval{50};

// Ends a transfer whose file another thread has taken over.
struct TakenOver {};

}  // namespace

Downloader::Downloader(DownloadOptions options, const std::vector<std::unique_ptr<PartFile>>& parts,
                       const StopFlag& stop)
    : options_(std::move(options)), stop_(stop) {
  for (const auto& part : parts) tasks_.push_back({.part = part.get(), .todo = part->Missing()});
}

uint64_t Downloader::ReceivedBytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const Task& task : tasks_)
    bytes += task.phase == Phase::kDone ? task.part->file().size : task.part->CoveredBytes();
  return static_cast<uint64_t>(bytes);
}

void Downloader::Work() {
  HttpClient client(options_.http, stop_);
  while (std::optional<Job> job = NextJob()) {
    if (job->verify) {
      Verify(*job->task);
    } else {
      Fetch(client, *job);
    }
    Finish(*job);
  }
}

std::optional<Downloader::Job> Downloader::NextJob() {
  std::unique_lock lock(mutex_);
  while (true) {
    stop_.Check();
    if (std::ranges::all_of(tasks_, [](const Task& task) { return task.phase == Phase::kDone; })) return std::nullopt;
    if (auto job = TakeJob()) return job;
    changed_.wait_for(lock, kStopCheckInterval);
  }
}

std::optional<Downloader::Job> Downloader::TakeJob() {
  for (Task& task : tasks_) {
    if (task.phase == Phase::kFetching && task.todo.empty() && task.active == 0) {
      task.phase = Phase::kVerifying;
      return Job{.task = &task, .verify = true, .range = {}};
    }
  }
  for (Task& task : tasks_) {
    if (task.phase != Phase::kFetching || task.todo.empty()) continue;
    ByteRange& first = task.todo.front();
    const ByteRange range{first.begin, std::min(first.end, first.begin + options_.range_bytes)};
    first.begin = range.end;
    if (first.begin == first.end) task.todo.erase(task.todo.begin());
    ++task.active;
    return Job{.task = &task, .range = range};
  }
  return std::nullopt;
}

void Downloader::Finish(const Job& job) {
  if (!job.verify) job.task->part->SaveState();
  {
    const std::lock_guard lock(mutex_);
    if (!job.verify) --job.task->active;
  }
  changed_.notify_all();
}

void Downloader::Fetch(HttpClient& client, Job& job) {
  Retrier retrier(options_.retry, stop_);
  while (job.range.begin < job.range.end) {
    const int64_t begin = job.range.begin;
    try {
      FetchOnce(client, job);
    } catch (const TakenOver&) {
      return;
    } catch (const TransientFailure& failure) {
      if (job.range.begin - begin >= kProgressBytes) retrier.Reset();
      retrier.Wait(failure);
    }
  }
}

void Downloader::FetchOnce(HttpClient& client, Job& job) {
  const RemoteFile& file = job.task->part->file();
  const std::string url = FileUrl(options_.address, file.name);
  const bool whole = job.range == ByteRange{0, file.size};
  int64_t offset = -1;
  const HttpHead head = client.Get(url, whole ? std::nullopt : std::optional(job.range),
                                   [&](const HttpHead& answer, std::string_view piece) {
                                     if (offset < 0) offset = BodyOffset(answer, job);
                                     StoreBody(piece, offset, job);
                                     offset += static_cast<int64_t>(piece.size());
                                   });
  const std::string what = fmt::format("cannot fetch {} of {}", file.name, options_.address.Describe());
  if (head.status == 416) {
    Throw(ErrorKind::kCorruptFile, fmt::format("{}: the hub has no bytes {}-{}, wanted a file of {} bytes", what,
                                               job.range.begin, job.range.end - 1, file.size));
  }
  CheckStatus(head, what, !options_.http.token.empty());
  if (job.range.begin < job.range.end) {
    throw TransientFailure(
        fmt::format("{}: found a body that ends at byte {}, wanted {}", what, job.range.begin, job.range.end));
  }
}

// Where in the file the body of this answer begins.
int64_t Downloader::BodyOffset(const HttpHead& head, Job& job) {
  const RemoteFile& file = job.task->part->file();
  if (head.status == 206) {
    const std::string text = head.Field("content-range").value_or("");
    const auto content = ParseContentRange(text);
    if (!content || content->size != file.size || content->range.begin != job.range.begin ||
        content->range.end > job.range.end) {
      Throw(ErrorKind::kCorruptFile, fmt::format("{}: found Content-Range \"{}\", wanted bytes {}-{}/{}", file.name,
                                                 Printable(text), job.range.begin, job.range.end - 1, file.size));
    }
    return content->range.begin;
  }
  const auto length = ParseSize(head.Field("content-length").value_or(""));
  if (length && *length != file.size) {
    Throw(ErrorKind::kCorruptFile, fmt::format("{}: found {} bytes, wanted {}", file.name, *length, file.size));
  }
  if (job.range != ByteRange{0, file.size}) TakeWholeFile(job);
  return 0;
}

void Downloader::StoreBody(std::string_view piece, int64_t offset, Job& job) {
  const int64_t end = offset + static_cast<int64_t>(piece.size());
  if (end > job.range.end) {
    const RemoteFile& file = job.task->part->file();
    Throw(ErrorKind::kCorruptFile,
          fmt::format("{}: found a body beyond byte {}, wanted no more", file.name, job.range.end));
  }
  if (end <= job.range.begin) return;  // a single stream again passes what is there
  if (offset < job.range.begin) piece.remove_prefix(static_cast<size_t>(job.range.begin - offset));
  job.task->part->Write(job.range.begin, piece);
  job.range.begin = end;
}

// The server sends the file from its beginning whatever was asked: one thread keeps that stream, the others let go.
void Downloader::TakeWholeFile(Job& job) {
  const std::lock_guard lock(mutex_);
  Task& task = *job.task;
  if (task.single_stream && !job.owns_file) throw TakenOver{};
  task.single_stream = job.owns_file = true;
  task.todo.clear();
  const std::vector<ByteRange> missing = task.part->Missing();
  if (missing.empty()) throw TakenOver{};
  job.range = {missing.front().begin, task.part->file().size};
}

void Downloader::Verify(Task& task) {
  const std::string difference = FindDifference(task.part->path(), task.part->file(), verified_bytes_, stop_);
  if (difference.empty()) {
    task.part->Publish();
  } else if (task.second_try) {
    task.part->Delete();
    Throw(ErrorKind::kCorruptFile, fmt::format("{} of {}: {}, also when fetched again", task.part->file().name,
                                               options_.address.Describe(), difference));
  } else {
    task.part->Reset();
  }
  const std::lock_guard lock(mutex_);
  task.phase = difference.empty() ? Phase::kDone : Phase::kFetching;
  if (difference.empty()) return;
  verified_bytes_ -= static_cast<uint64_t>(task.part->file().size);
  task.second_try = true;
  task.single_stream = false;
  task.todo = task.part->Missing();
}

}  // namespace lapidary
