#pragma once

#include <memory>
#include <string>

#include "generation/text_service.h"
#include "server/http_exchange.h"

namespace lapidary {

// What /metrics shows, in Prometheus' text format. Any thread may call.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // An HTTP request has been answered, or given up.
  void Count(const RequestRecord& record);
  std::string Text(const TextServiceCounters& counters, int64_t live, int connections) const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace lapidary
