#pragma once

#include <chrono>
#include <string>

#include "hub/http.h"
#include "hub/workers.h"

namespace lapidary {

struct RetryOptions {
  int retries = 5;
  std::chrono::milliseconds first_wait{500};
};

// Counts the failed attempts at one thing and sleeps between them.
class Retrier {
 public:
  // `stop` must outlive the retrier.
  Retrier(RetryOptions options, const StopFlag& stop) : options_(options), stop_(stop) {}

  // How long to wait after this failure: doubles each time up to 30 s, or what the server asked for up to 60 s.
  std::chrono::milliseconds NextWait(const TransientFailure& failure) const;

  // Sleeps for NextWait. Throws Error kDevice once the retries are spent, kCancelled when stopped.
  void Wait(const TransientFailure& failure);

  // The last attempt got somewhere: counts from the beginning again.
  void Reset() { failures_ = 0; }

 private:
  RetryOptions options_;
  const StopFlag& stop_;
  int failures_ = 0;
};

// attempt() until it throws no TransientFailure.
template <typename Attempt>
auto WithRetries(RetryOptions options, const StopFlag& stop, const Attempt& attempt) {
  Retrier retrier(options, stop);
  while (true) {
    try {
      return attempt();
    } catch (const TransientFailure& failure) {
      retrier.Wait(failure);
    }
  }
}

}  // namespace lapidary
