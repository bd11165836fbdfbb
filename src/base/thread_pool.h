#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lapidary {

// A fixed set of threads that run one function together. The split is static: thread t of n always gets the same part
// of the same work, so results cannot depend on timing. Run() must come from one thread at a time and does not nest.
// Workers spin for a short while after each Run so that the next one starts within about a microsecond, then sleep.
class ThreadPool {
 public:
  // `threads` in [1, 4096], the calling thread included. Throws Error kInvalidArgument otherwise, kOutOfMemory when the
  // system refuses that many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(thread) for thread in [0, threads()), thread 0 on the caller, and returns when all are done.
  // `task` must not throw.
  template <typename Task>
  void Run(const Task& task) {
    RunErased([](const void* context, int thread) { (*static_cast<const Task*>(context))(thread); }, &task);
  }

  // The contiguous part of [0, count) that belongs to `thread`, cut at multiples of `grain`.
  static std::pair<size_t, size_t> Part(size_t count, size_t grain, int thread, int threads);

  // Calls task(begin, end, thread) on each thread's non-empty Part of [0, count).
  template <typename Task>
  void ParallelFor(size_t count, size_t grain, const Task& task) {
    Run([&](int thread) {
      const auto [begin, end] = Part(count, grain, thread, threads());
      if (begin < end) task(begin, end, thread);
    });
  }

  // One thread for each physical core that this process may run on; at least 1.
  static int DefaultThreads();

 private:
  using Erased = void (*)(const void* context, int thread);

  void RunErased(Erased function, const void* context);
  void Work(int thread);
  void Stop();

  Erased function_ = nullptr;
  const void* context_ = nullptr;
  alignas(64) std::atomic<uint64_t> round_{0};  // bumped once per Run; workers wait for it to change
  alignas(64) std::atomic<int> running_{0};     // workers still inside the current round
  alignas(64) std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace lapidary
