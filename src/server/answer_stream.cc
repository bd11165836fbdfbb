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
using Clock = std::chrono::steady_clock;

// About the memory that it takes.
size_t BytesOf(const AnswerDelta& delta) {
  constexpr size_t kTokenBytes = 64, kLogprobsBytes = 64;
  size_t bytes = delta.ids.size() * kTokenBytes;
  for (const ChatEvent& event : delta.events) bytes += event.text.size();
  for (const auto* logprobs : {&delta.logprobs, &delta.prompt_logprobs}) {
    for (const TokenLogprobs& token : *logprobs) bytes += kLogprobsBytes * (1 + token.top.size());
  }
  return bytes;
}

Clock::time_point NextTick(Clock::time_point now, Clock::duration pace) {
  if (pace.count() == 0) return now;
  return Clock::time_point((now.time_since_epoch() / pace + 1) * pace);
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
  enum class Wakes : uint8_t { kNothing, kUrgent, kAnything };

  Shared(TextService& text_service, asio::any_io_executor strand, const AnswerStreamOptions& options)
      : service(text_service),
        timer(std::in_place, strand),
        limit_bytes(options.limit_bytes),
        gate(options.gate),
        executor(std::move(strand)) {}

  // On the service's thread. Returns whether there is room for more.
  bool Push(size_t choice, AnswerDelta delta) {
    const std::lock_guard lock(mutex);
    if (!executor) return true;
    bytes += BytesOf(delta);
    urgent = urgent || bytes > limit_bytes / 2 || delta.end;
    items.push_back({choice, std::move(delta)});
    if (wakes == Wakes::kAnything || (wakes == Wakes::kUrgent && urgent)) {
      wakes = Wakes::kNothing;
      gate->Pass([this] {
        asio::post(executor, [self = shared_from_this()] {
          if (self->timer) self->timer->cancel();
        });
      });
    }
    return !full();
  }

  bool full() const { return bytes > limit_bytes; }

  // On the strand, as all below: nothing more is wanted.
  void Abandon() {
    timer.reset();
    const std::lock_guard lock(mutex);
    executor = {};
  }

  void Cancel() {
    for (const AnswerId id : ids) service.Cancel(id);
  }

  // Whether there is something to wait for that `what` stands for; then Push tells when it has come.
  bool Arm(Wakes what) {
    const std::lock_guard lock(mutex);
    if (urgent || (what == Wakes::kAnything && !items.empty())) return false;
    wakes = what;
    return true;
  }

  void Disarm() {
    const std::lock_guard lock(mutex);
    wakes = Wakes::kNothing;
  }

  // May end early.
  Task<> Wait(Clock::time_point until, Wakes what) {
    if (Clock::now() >= until || !Arm(what)) co_return;
    boost::system::error_code ignored;
    timer->expires_at(until);
    co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    Disarm();
  }

  bool empty() {
    const std::lock_guard lock(mutex);
    return items.empty();
  }

  std::vector<Item> TakeItems() {
    std::unique_lock lock(mutex);
    const bool was_full = full();
    urgent = false;
    bytes = 0;
    std::vector<Item> taken = std::exchange(items, {});
    lock.unlock();
    if (was_full) {
      for (const AnswerId id : ids) service.Resume(id);
    }
    return taken;
  }

  // Of the strand.
  TextService& service;
  std::vector<AnswerId> ids;
  std::optional<asio::steady_timer> timer;  // empty: abandoned

  const size_t limit_bytes;
  const std::shared_ptr<StrandGate> gate;
  std::mutex mutex;                // guards what follows
  asio::any_io_executor executor;  // empty: abandoned
  std::vector<Item> items;
  size_t bytes = 0;
  bool urgent = false;            // an end, or little room for more
  Wakes wakes = Wakes::kNothing;  // what the strand waits for
};

AnswerStream::AnswerStream(TextService& service, std::vector<AnswerRequest> requests, asio::any_io_executor executor,
                           const AnswerStreamOptions& options)
    : shared_(std::make_shared<Shared>(service, std::move(executor), options)),
      open_(requests.size()),
      pace_(options.pace) {
  std::vector<AnswerSubmission> submissions;
  for (size_t i = 0; i < requests.size(); ++i) {
    submissions.push_back({.request = std::move(requests[i]), .sink = [shared = shared_, i](AnswerDelta delta) {
                             return shared->Push(i, std::move(delta));
                           }});
  }
  std::optional<std::vector<AnswerId>> ids = service.Submit(std::move(submissions));
  if (!ids) {
    throw ApiError(429, "too many requests: the queue is full, try again later", "", "queue_full", RetryAfter(service));
  }
  shared_->ids = std::move(*ids);
}

AnswerStream::~AnswerStream() {
  shared_->Abandon();
  if (open_ > 0) shared_->Cancel();
}

Task<std::vector<AnswerStream::Item>> AnswerStream::Next(Clock::time_point deadline) {
  co_await shared_->Wait(std::min(not_before_, deadline), Shared::Wakes::kUrgent);
  while (shared_->empty() && Clock::now() < deadline) co_await shared_->Wait(deadline, Shared::Wakes::kAnything);
  std::vector<Item> items = shared_->TakeItems();
  if (!items.empty()) not_before_ = NextTick(Clock::now(), pace_);
  for (const Item& item : items) open_ -= item.delta.end.has_value();
  co_return items;
}

}  // namespace lapidary
