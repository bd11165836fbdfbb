#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace lapidary {

// Asks threads to end early. Thread-safe; once set it stays set.
class StopFlag {
 public:
  void Set();
  bool IsSet() const { return set_.load(std::memory_order_relaxed); }
  // Throws Error kCancelled when set.
  void Check() const;
  // Sleeps that long, or until the flag is set.
  void SleepFor(std::chrono::milliseconds duration) const;

 private:
  std::atomic<bool> set_ = false;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

// Runs `body` on `count` new threads and `poll` on this one about ten times a second until all have returned. The first
// exception of any of them sets `stop` and is rethrown once all threads have ended. The threads take no signals, so
// that those of the process reach its own threads and a closed connection raises no SIGPIPE.
void RunWorkers(int count, StopFlag& stop, const std::function<void()>& body, const std::function<void()>& poll);

}  // namespace lapidary
