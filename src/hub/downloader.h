#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/http.h"
#include "hub/listing.h"
#include "hub/part_file.h"
#include "hub/retry.h"
#include "hub/workers.h"

namespace lapidary {

struct DownloadOptions {
  HubAddress address;  // its revision is a commit
  HttpOptions http;
  RetryOptions retry;
  int64_t range_bytes = int64_t{32} << 20;
};

// Fetches parts in ranges, verifies and publishes them. Any number of threads call Work(); all of them return when
// every part is published, or one throws and the stop flag is set.
class Downloader {
 public:
  // `parts` are allocated. They and `stop` must outlive the downloader.
  Downloader(DownloadOptions options, const std::vector<std::unique_ptr<PartFile>>& parts, const StopFlag& stop);

  void Work();

  uint64_t ReceivedBytes() const;
  uint64_t VerifiedBytes() const { return verified_bytes_.load(); }

 private:
  enum class Phase { kFetching, kVerifying, kDone };
  struct Task {
    PartFile* part;
    std::vector<ByteRange> todo;  // not yet given to a thread
    int active = 0;               // threads fetching from it
    bool single_stream = false;   // the server ignores ranges: one thread takes all that is missing
    bool second_try = false;
    Phase phase = Phase::kFetching;
  };
  struct Job {
    Task* task = nullptr;
    bool verify = false;
    ByteRange range;         // still to fetch; begin moves on as bytes arrive
    bool owns_file = false;  // the one thread of a single stream
  };

  std::optional<Job> NextJob();
  std::optional<Job> TakeJob();
  void Finish(const Job& job);
  void Fetch(HttpClient& client, Job& job);
  void FetchOnce(HttpClient& client, Job& job);
  int64_t BodyOffset(const HttpHead& head, Job& job);
  void StoreBody(std::string_view piece, int64_t offset, Job& job);
  void TakeWholeFile(Job& job);
  void Verify(Task& task);

  const DownloadOptions options_;
  const StopFlag& stop_;
  std::atomic<uint64_t> verified_bytes_ = 0;

  mutable std::mutex mutex_;  // guards tasks_ and what they hold, except the parts
  std::condition_variable changed_;
  std::vector<Task> tasks_;
};

}  // namespace lapidary
