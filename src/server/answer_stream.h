#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "generation/text_service.h"
#include "server/http_exchange.h"

namespace lapidary {

// Lets sinks wake strands for as long as those exist. Any thread.
class StrandGate {
 public:
  // Runs `wake`, unless closed.
  template <typename Wake>
  void Pass(const Wake& wake) {
    const std::lock_guard lock(mutex_);
    if (open_) wake();
  }
  // Behind this nothing runs, and nothing will.
  void Close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }

 private:
  std::mutex mutex_;
  bool open_ = true;
};

struct AnswerStreamOptions {
  // Looks are this far apart, at the same moments for all streams, so that they cost little beside fast steps.
  std::chrono::milliseconds pace{0};
  // More than this of text that nobody has taken pauses the answers.
  size_t limit_bytes = 0;
  // To be closed before the strand's context is destroyed: the service may still have something to say then.
  std::shared_ptr<StrandGate> gate = std::make_shared<StrandGate>();
};

// The answers of one HTTP request, on their way from the service's thread to the connection's strand. Destroyed before
// they have ended, it cancels them.
class AnswerStream {
 public:
  struct Item {
    size_t choice = 0;
    AnswerDelta delta;
  };

  // Submits the requests together. Throws ApiError 429 when the queue is full, and what TextService::Submit throws.
  // `executor` is the strand that all calls run on, and the service outlives it.
  AnswerStream(TextService& service, std::vector<AnswerRequest> requests, boost::asio::any_io_executor executor,
               const AnswerStreamOptions& options);
  ~AnswerStream();
  AnswerStream(const AnswerStream&) = delete;
  AnswerStream& operator=(const AnswerStream&) = delete;

  // What has come since the last call, waiting for the first of it until `deadline`; then nothing. What comes within
  // the pace comes together, the end of an answer at once.
  Task<std::vector<Item>> Next(std::chrono::steady_clock::time_point deadline);
  // Answers that have not ended, as far as Next has told.
  size_t open() const { return open_; }

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
  size_t open_;
  std::chrono::milliseconds pace_;
  std::chrono::steady_clock::time_point not_before_{};  // of the next look
};

}  // namespace lapidary
