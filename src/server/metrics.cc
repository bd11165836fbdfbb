#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace lapidary {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries& Seconds() {
  static const prometheus::Histogram::BucketBoundaries bounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                                 1,     2.5,  5,     10,   30,  60,   300};
  return bounds;
}

// A family of values that are counted elsewhere and read when somebody asks.
class Snapshot {
 public:
  Snapshot& Add(const char* name, const char* help, MetricType type, int64_t value) {
    families_.push_back({name, help, type, {}});
    return With("", "", value);
  }
  Snapshot& Counter(const char* name, const char* help, int64_t value) {
    return Add(name, help, MetricType::Counter, value);
  }
  Snapshot& Gauge(const char* name, const char* help, int64_t value) {
    return Add(name, help, MetricType::Gauge, value);
  }
  // For each K/V group.
  Snapshot& Blocks(const char* name, const char* help, const std::array<int64_t, kKvGroups>& values) {
    constexpr std::array<const char*, kKvGroups> kNames = {"sliding", "full"};
    families_.push_back({name, help, MetricType::Gauge, {}});
    for (size_t g = 0; g < kKvGroups; ++g) With("group", kNames[g], values[g]);
    return *this;
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  Snapshot& With(const char* label, const char* label_value, int64_t value) {
    MetricFamily& family = families_.back();
    ClientMetric metric;
    if (*label != '\0') metric.label.push_back({label, label_value});
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = static_cast<double>(value);
    family.metric.push_back(std::move(metric));
    return *this;
  }

  std::vector<MetricFamily> families_;
};

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void AddEngine(const EngineCounters& engine, Snapshot& snapshot) {
  snapshot.Blocks("lapidary_kv_blocks_used", "K/V blocks held by requests", engine.used_blocks)
      .Blocks("lapidary_kv_blocks_cached", "K/V blocks kept for later requests alone", engine.cached_blocks)
      .Blocks("lapidary_kv_blocks", "K/V blocks in all", engine.total_blocks)
      .Counter("lapidary_preemptions_total", "Requests set back because K/V blocks ran out", engine.preemptions)
      .Counter("lapidary_prefix_hit_tokens_total", "Prompt tokens taken from the prefix cache",
               engine.prefix_hit_tokens)
      .Counter("lapidary_prefill_tokens_total", "Prompt tokens computed", engine.prompt_tokens)
      .Counter("lapidary_decode_tokens_total", "Answer tokens chosen", engine.decode_tokens)
      .Counter("lapidary_draft_tokens_total", "Tokens drafted by speculation", engine.speculation.drafted)
      .Counter("lapidary_draft_tokens_accepted_total", "Drafted tokens that were right", engine.speculation.accepted);
}

void AddService(const TextServiceCounters& counters, Snapshot& snapshot) {
  snapshot.Counter("lapidary_answers_submitted_total", "Answers asked for and taken", counters.submitted)
      .Counter("lapidary_answers_refused_total", "Answers refused because the queue was full", counters.refused)
      .Counter("lapidary_answers_stopped_total", "Answers that ended by themselves", counters.stopped)
      .Counter("lapidary_answers_length_total", "Answers that reached their length", counters.reached_length)
      .Counter("lapidary_answers_cancelled_total", "Answers whose client went away", counters.cancelled)
      .Counter("lapidary_answers_failed_total", "Answers that failed", counters.failed)
      .Counter("lapidary_failed_steps_total", "Steps of the model that failed", counters.failed_steps);
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter().Name("lapidary_http_requests_total").Help("HTTP requests answered").Register(registry);
  prometheus::Family<prometheus::Histogram>& seconds = prometheus::BuildHistogram()
                                                           .Name("lapidary_http_request_seconds")
                                                           .Help("From a request's arrival to the end of its answer")
                                                           .Register(registry);
  prometheus::Histogram& first_token = prometheus::BuildHistogram()
                                           .Name("lapidary_time_to_first_token_seconds")
                                           .Help("From a request's arrival to its first token")
                                           .Register(registry)
                                           .Add({}, Seconds());
  prometheus::Histogram& queue = prometheus::BuildHistogram()
                                     .Name("lapidary_queue_seconds")
                                     .Help("From a request's arrival to the step that takes up its prompt")
                                     .Register(registry)
                                     .Add({}, Seconds());
  prometheus::Counter& prompt_tokens = prometheus::BuildCounter()
                                           .Name("lapidary_prompt_tokens_total")
                                           .Help("Prompt tokens of answered requests")
                                           .Register(registry)
                                           .Add({});
  prometheus::Counter& answer_tokens = prometheus::BuildCounter()
                                           .Name("lapidary_answer_tokens_total")
                                           .Help("Answer tokens of answered requests")
                                           .Register(registry)
                                           .Add({});
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::Count(const RequestRecord& record) {
  families_->requests.Add({{"endpoint", record.endpoint}, {"status", std::to_string(record.status)}}).Increment();
  families_->seconds.Add({{"endpoint", record.endpoint}}, Seconds()).Observe(record.total_s);
  if (record.prompt_tokens == 0) return;
  families_->prompt_tokens.Increment(static_cast<double>(record.prompt_tokens));
  families_->answer_tokens.Increment(static_cast<double>(record.answer_tokens));
  families_->queue.Observe(record.queue_s);
  if (record.first_token_s > 0) families_->first_token.Observe(record.first_token_s);
}

std::string Metrics::Text(const TextServiceCounters& counters, int64_t live, int connections) const {
  Snapshot snapshot;
  const int64_t running = counters.engine.running, paused = counters.engine.paused;
  snapshot.Gauge("lapidary_requests_running", "Answers being computed", running)
      .Gauge("lapidary_requests_waiting", "Answers in the queue", std::max<int64_t>(0, live - running - paused))
      .Gauge("lapidary_requests_paused", "Answers that wait for their readers", paused)
      .Gauge("lapidary_connections", "Open connections", connections)
      .Gauge("process_resident_memory_bytes", "Resident memory", ResidentBytes());
  AddEngine(counters.engine, snapshot);
  AddService(counters, snapshot);
  std::vector<MetricFamily> families = families_->registry.Collect();
  for (MetricFamily& family : snapshot.Take()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace lapidary
