#include "hub/workers.h"

#include <csignal>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"

namespace lapidary {
namespace {

constexpr std::chrono::milliseconds kPollInterval{100};

void BlockSignals() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, fault);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

void StopFlag::Set() {
  {
    const std::lock_guard lock(mutex_);
    set_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_all();
}

void StopFlag::Check() const {
  if (IsSet()) Throw(ErrorKind::kCancelled, "download stopped");
}

void StopFlag::SleepFor(std::chrono::milliseconds duration) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, duration, [&] { return IsSet(); });
}

void RunWorkers(int count, StopFlag& stop, const std::function<void()>& body, const std::function<void()>& poll) {
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;
  std::exception_ptr failure;
  const auto fail = [&] {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    stop.Set();
  };
  const auto work = [&] {
    BlockSignals();
    try {
      body();
    } catch (...) {
      fail();
    }
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_all();
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int i = 0; i < count; ++i) {
        const std::lock_guard lock(mutex);
        threads.emplace_back(work);
        ++running;
      }
      for (bool done = false; !done;) {
        poll();
        std::unique_lock lock(mutex);
        done = ended.wait_for(lock, kPollInterval, [&] { return running == 0; });
      }
    } catch (...) {
      fail();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lapidary
