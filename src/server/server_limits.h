#pragma once

#include <chrono>
#include <cstddef>

namespace lapidary {

struct ServerLimits {
  size_t header_bytes = 16 << 10;
  size_t body_bytes = 16 << 20;
  int connections = 4096;
  std::chrono::milliseconds header_time{10'000};  // from a connection's or a request's first byte to the end of headers
  std::chrono::milliseconds body_time{60'000};
  std::chrono::milliseconds idle_time{75'000};   // between requests of one connection
  std::chrono::milliseconds write_time{30'000};  // of one write to a reader that takes nothing
  std::chrono::milliseconds answer_time{0};      // of one request from its arrival to its end; 0: no limit
  std::chrono::milliseconds keep_alive{5'000};   // a stream that has nothing to say sends a comment this often
  std::chrono::milliseconds drain_time{60'000};  // requests that still run this long after Drain are cut
  std::chrono::milliseconds stream_pace{20};     // what a stream says in this time goes in one write; 0: each step's
  size_t stream_buffer_bytes = 64 << 10;         // of answer waiting for a slow reader; more pauses the answer
};

}  // namespace lapidary
