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

struct AnswerStreamOptions {
  // Looks are this far apart, at the same moments for all streams, so that they cost little beside fast steps.
  std::chrono::milliseconds pace{0};
  // More than this of text that nobody has taken pauses the answers.
  size_t limit_bytes = 0;
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
