#include "server/answer_stream.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cmath>
#include <optional>
#include <utility>

#include "server/api_error.h"

namespace lapidary {
namespace {

namespace asio = boost::asio;

size_t BytesOf(const AnswerDelta& delta) {
  constexpr size_t kTokenBytes = 16, kLogprobsBytes = 64;  // about what a token without text takes
  size_t bytes = delta.ids.size() * kTokenBytes;
  for (const ChatEvent& event : delta.events) bytes += event.text.size();
  for (const TokenLogprobs& logprobs : delta.logprobs) bytes += kLogprobsBytes * (1 + logprobs.top.size());
  return bytes;
}

// How long a client had better wait: what is queued, at a second for each full set of running sequences.
int RetryAfter(const TextService& service) {
  const double rounds = static_cast<double>(service.live()) / service.engine_options().max_sequences;
  return std::clamp(static_cast<int>(std::ceil(rounds)), 1, 60);
}

}  // namespace

// Outlives the stream, and even its strand, while the service still has sinks that point at it: what belongs to the
// strand is given back when the stream goes.
struct AnswerStream::Shared : std::enable_shared_from_this<Shared> {
  Shared(TextService& text_service, asio::any_io_executor strand, size_t limit)
      : service(text_service), timer(std::in_place, strand), limit_bytes(limit), executor(std::move(strand)) {}

  // On the service's thread.
  void Push(size_t choice, AnswerDelta delta) {
    const std::lock_guard lock(mutex);
    if (overflown || !executor) return;
    bytes += BytesOf(delta);
    overflown = bytes > limit_bytes;
    items.push_back({choice, std::move(delta)});
    if (notified && !overflown) return;
    notified = true;
    asio::post(executor, [self = shared_from_this()] { self->Wake(); });
  }

  void Wake() {
    if (timer) timer->cancel();
    if (Overflown()) Cancel();
  }

  // On the strand: nothing more is wanted.
  void Abandon() {
    timer.reset();
    const std::lock_guard lock(mutex);
    executor = {};
  }

  void Cancel() {
    for (const AnswerId id : ids) service.Cancel(id);
  }

  bool Overflown() {
    const std::lock_guard lock(mutex);
    return overflown;
  }

  std::vector<Item> TakeItems() {
    const std::lock_guard lock(mutex);
    notified = false;
    bytes = 0;
    return std::exchange(items, {});
  }

  // Of the strand.
  TextService& service;
  std::vector<AnswerId> ids;
  std::optional<asio::steady_timer> timer;  // empty: abandoned

  const size_t limit_bytes;
  std::mutex mutex;                // guards what follows
  asio::any_io_executor executor;  // empty: abandoned
  std::vector<Item> items;
  size_t bytes = 0;
  bool notified = false;  // the strand has been told and has not looked yet
  bool overflown = false;
};

AnswerStream::AnswerStream(TextService& service, std::vector<AnswerRequest> requests, asio::any_io_executor executor,
                           size_t limit_bytes)
    : shared_(std::make_shared<Shared>(service, std::move(executor), limit_bytes)), open_(requests.size()) {
  std::vector<AnswerSubmission> submissions;
  for (size_t i = 0; i < requests.size(); ++i) {
    submissions.push_back({.request = std::move(requests[i]),
                           .sink = [shared = shared_, i](AnswerDelta delta) { shared->Push(i, std::move(delta)); }});
  }
  std::optional<std::vector<AnswerId>> ids = service.Submit(std::move(submissions));
  if (!ids) {
    ApiError error(429, "too many requests: the queue is full, try again later", "", "queue_full");
    error.retry_after_s = RetryAfter(service);
    throw error;
  }
  shared_->ids = std::move(*ids);
}

AnswerStream::~AnswerStream() {
  shared_->Abandon();
  if (open_ > 0) shared_->Cancel();
}

Task<std::vector<AnswerStream::Item>> AnswerStream::Next(std::chrono::steady_clock::time_point deadline) {
  std::vector<Item> items = shared_->TakeItems();
  if (items.empty()) {
    boost::system::error_code ignored;
    shared_->timer->expires_at(deadline);
    co_await shared_->timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    items = shared_->TakeItems();
  }
  if (shared_->Overflown()) throw ApiError(503, "the reader is too slow: the answer was ended", "", "slow_reader");
  for (const Item& item : items) open_ -= item.delta.end.has_value();
  co_return items;
}

}  // namespace lapidary
