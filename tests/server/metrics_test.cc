#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, ShowsRequestsAndTheEngine) {
  Metrics metrics;
  RequestRecord record;
  record.endpoint = "chat_completions";
  record.status = 200;
  record.prompt_tokens = 7;
  record.answer_tokens = 5;
  record.first_token_s = 0.03;
  metrics.Count(record);
  record.prompt_tokens = 0;
  record.status = 400;
  metrics.Count(record);
  TextServiceCounters counters;
  counters.engine.running = 2;
  counters.engine.used_blocks = {3, 4};
  counters.refused = 9;
  const std::string text = metrics.Text(counters, 5, 11);
  for (const char* line :
       {"lapidary_http_requests_total{endpoint=\"chat_completions\",status=\"200\"} 1\n",
        "lapidary_http_requests_total{endpoint=\"chat_completions\",status=\"400\"} 1\n",
        "lapidary_prompt_tokens_total 7\n", "lapidary_time_to_first_token_seconds_bucket{le=\"0.025\"} 0\n",
        "lapidary_time_to_first_token_seconds_bucket{le=\"0.05\"} 1\n", "lapidary_requests_running 2\n",
        "lapidary_requests_waiting 3\n", "lapidary_kv_blocks_used{group=\"sliding\"} 3\n",
        "lapidary_kv_blocks_used{group=\"full\"} 4\n", "lapidary_answers_refused_total 9\n",
        "lapidary_connections 11\n", "# TYPE lapidary_answers_refused_total counter\n",
        "process_resident_memory_bytes "}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("process_resident_memory_bytes 0\n")));
}

}  // namespace
}  // namespace lapidary
