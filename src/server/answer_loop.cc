#include "server/answer_loop.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "server/answer_stream.h"

namespace lapidary {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWholePace{1000};  // of answers that nobody sees before their end

// Fills in the record as answers end, and turns failures into what the client is told.
void NoteEnd(const AnswerEnd& end, RequestRecord& record) {
  record.answer_tokens += end.answer_tokens;
  record.queue_s = std::max(record.queue_s, end.timings.queue_s);
  const double first = end.timings.first_token_s;
  if (first > 0 && (record.first_token_s == 0 || first < record.first_token_s)) record.first_token_s = first;
  if (end.error) throw FromError(*end.error);
  if (end.finish == FinishReason::kCancelled) throw ApiError(503, "the server is shutting down", "", "shutting_down");
  if (!record.finish.empty()) record.finish += ',';
  record.finish += FinishName(end);
}

class AnswerLoop {
 public:
  AnswerLoop(ApiContext& context, HttpExchange& exchange, AnswerPlan plan, AnswerFormat& format)
      : limits_(context.options.limits),
        exchange_(exchange),
        format_(format),
        stream_(plan.stream),
        include_usage_(plan.include_usage),
        usage_(plan.choices_per_prompt),
        answers_(context.service, std::move(plan.requests), exchange.executor(),
                 {.pace = stream_ ? limits_.stream_pace : kWholePace,
                  .limit_bytes = limits_.stream_buffer_bytes,
                  .gate = context.state.gate}) {}

  Task<> Run() {
    while (answers_.open() > 0) {
      std::vector<AnswerStream::Item> items = co_await answers_.Next(NextLook());
      if (items.empty()) {
        co_await Wait();
      } else {
        co_await Take(Joined(std::move(items)));
      }
    }
    NoteUsage();
    if (stream_) {
      co_await FinishEvents();
    } else {
      HttpReply reply;
      reply.body = Text(format_.Whole(usage_));
      co_await exchange_.Send(std::move(reply));
    }
  }

 private:
  static std::string Text(const OrderedJson& json) {
    return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  static std::string Event(const OrderedJson& json) { return "data: " + Text(json) + "\n\n"; }

  Clock::time_point Deadline() const {
    return limits_.answer_time.count() == 0 ? Clock::time_point::max() : arrived_ + limits_.answer_time;
  }
  Clock::time_point NextLook() const { return std::min(Deadline(), Clock::now() + limits_.keep_alive); }

  // What came for each choice since the last look, as one delta.
  static std::map<size_t, AnswerDelta> Joined(std::vector<AnswerStream::Item> items) {
    std::map<size_t, AnswerDelta> joined;
    for (AnswerStream::Item& item : items) Append(std::move(item.delta), joined[item.choice]);
    return joined;
  }

  Task<> Wait() {
    if (Clock::now() >= Deadline()) throw ApiError(504, "the answer took too long", "", "timeout");
    if (stream_) co_await Write(": keep-alive\n\n");
  }

  Task<> Take(std::map<size_t, AnswerDelta> deltas) {
    std::vector<OrderedJson> chunks;
    for (const auto& [choice, delta] : deltas) {
      if (delta.end) {
        NoteEnd(*delta.end, exchange_.record());
        usage_.Add(choice, *delta.end);
      }
      if (stream_) {
        format_.Chunks(choice, delta, chunks);
      } else {
        format_.Take(choice, delta);
      }
    }
    std::string bytes;
    for (OrderedJson& chunk : chunks) {
      if (include_usage_) chunk["usage"] = nullptr;
      bytes += Event(chunk);
    }
    if (!bytes.empty()) co_await Write(std::move(bytes));
  }

  Task<> Write(std::string bytes) {
    if (!exchange_.events_begun()) co_await exchange_.BeginEvents();
    co_await exchange_.WriteEvents(std::move(bytes));
  }

  Task<> FinishEvents() {
    std::string bytes;
    if (include_usage_) {
      OrderedJson chunk = format_.EmptyChunk();
      chunk["usage"] = usage_.Json();
      bytes = Event(chunk);
    }
    bytes += "data: [DONE]\n\n";
    co_await Write(std::move(bytes));
    co_await exchange_.EndEvents();
  }

  void NoteUsage() {
    const OrderedJson usage = usage_.Json();
    exchange_.record().prompt_tokens = usage["prompt_tokens"];
    exchange_.record().cached_tokens = usage["prompt_tokens_details"]["cached_tokens"];
  }

  const ServerLimits& limits_;
  HttpExchange& exchange_;
  AnswerFormat& format_;
  const bool stream_, include_usage_;
  const Clock::time_point arrived_ = Clock::now();
  Usage usage_;
  AnswerStream answers_;
};

}  // namespace

Task<> Answer(ApiContext& context, HttpExchange& exchange, AnswerPlan plan, AnswerFormat& format) {
  if (static_cast<int64_t>(plan.requests.size()) > context.service.capacity()) {
    throw ApiError(400,
                   "found " + std::to_string(plan.requests.size()) + " answers to one request, wanted at most " +
                       std::to_string(context.service.capacity()),
                   "n", "invalid_value");
  }
  AnswerLoop loop(context, exchange, std::move(plan), format);
  co_await loop.Run();
}

}  // namespace lapidary
