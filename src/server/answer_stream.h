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

// The answers of one HTTP request, on their way from the service's thread to the connection's strand. Destroyed before
// they have ended, it cancels them.
class AnswerStream {
 public:
  struct Item {
    size_t choice = 0;
    AnswerDelta delta;
  };

  // Submits the requests together. Throws ApiError 429 when the queue is full, and what TextService::Submit throws.
  // `executor` is the strand that all calls run on, and the service outlives it; more than `limit_bytes` of text that
  // nobody takes ends the answers.
  AnswerStream(TextService& service, std::vector<AnswerRequest> requests, boost::asio::any_io_executor executor,
               size_t limit_bytes);
  ~AnswerStream();
  AnswerStream(const AnswerStream&) = delete;
  AnswerStream& operator=(const AnswerStream&) = delete;

  // What has come since the last call, waiting for the first of it until `deadline`; then nothing. Throws ApiError 503
  // when the answers were ended because nobody took them.
  Task<std::vector<Item>> Next(std::chrono::steady_clock::time_point deadline);
  // Answers that have not ended, as far as Next has told.
  size_t open() const { return open_; }

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
  size_t open_;
};

}  // namespace lapidary
