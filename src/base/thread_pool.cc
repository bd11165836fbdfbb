#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "base/error.h"

namespace lapidary {
namespace {

// About 100 us of spinning on the machines measured: longer than the gap between two operations of a step, far shorter
// than the gap between two requests.
constexpr int kSpins = 4000;

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1 || threads > 4096) {
    Throw(ErrorKind::kInvalidArgument, "threads: found " + std::to_string(threads) + ", wanted 1 to 4096");
  }
  workers_.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { Work(thread); });
    }
  } catch (const std::system_error& error) {
    const std::string started = std::to_string(workers_.size() + 1);
    Stop();
    Throw(ErrorKind::kOutOfMemory,
          "threads: found room for " + started + ", wanted " + std::to_string(threads) + ": " + error.what());
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  stopping_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunErased(Erased function, const void* context) {
  if (workers_.empty()) {
    function(context, 0);
    return;
  }
  function_ = function;
  context_ = context;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  function(context, 0);
  for (int spins = 0; running_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      CpuRelax();
    } else {
      ::sched_yield();  // more threads than cores: let the others finish
    }
  }
}

void ThreadPool::Work(int thread) {
  uint64_t seen = 0;
  while (true) {
    for (int spins = 0; spins < kSpins && round_.load(std::memory_order_acquire) == seen; ++spins) CpuRelax();
    round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    function_(context_, thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

std::pair<size_t, size_t> ThreadPool::Part(size_t count, size_t grain, int thread, int threads) {
  const size_t grains = (count + grain - 1) / grain;
  const size_t n = static_cast<size_t>(threads), t = static_cast<size_t>(thread);
  return {std::min(count, grains * t / n * grain), std::min(count, grains * (t + 1) / n * grain)};
}

int ThreadPool::DefaultThreads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string core;
    if (!std::getline(siblings, core)) core = "cpu" + std::to_string(cpu);
    cores.insert(core);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace lapidary
