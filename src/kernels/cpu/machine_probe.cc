#include "kernels/cpu/machine_probe.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/machine_probe.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, comes before highway.h

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sums 32-bit words; `bytes` is a multiple of the largest vector times the number of sums.
uint32_t SumWords(const uint32_t* words, size_t bytes) {
  const hn::ScalableTag<uint32_t> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  V a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  for (size_t i = 0; i < bytes / sizeof(uint32_t); i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, words + i));
    b = hn::Add(b, hn::LoadU(d, words + i + lanes));
    c = hn::Add(c, hn::LoadU(d, words + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, words + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// `rounds` times 12 multiply-adds of one vector each, none waiting for another of its round: enough to fill two units
// of latency 4 or 5, and no more registers than AVX2 has. They start apart, or the compiler would see that they are all
// the same. Returns something that depends on all of them.
float MultiplyAdd(size_t rounds, float factor) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V m = hn::Set(d, factor);
  const auto start = [&](int i) HWY_ATTR { return hn::Set(d, factor + static_cast<float>(i)); };
  V a0 = start(0), a1 = start(1), a2 = start(2), a3 = start(3), a4 = start(4), a5 = start(5), a6 = start(6);
  V a7 = start(7), a8 = start(8), a9 = start(9), a10 = start(10), a11 = start(11);
  for (size_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, m, m), a1 = hn::MulAdd(a1, m, m), a2 = hn::MulAdd(a2, m, m), a3 = hn::MulAdd(a3, m, m);
    a4 = hn::MulAdd(a4, m, m), a5 = hn::MulAdd(a5, m, m), a6 = hn::MulAdd(a6, m, m), a7 = hn::MulAdd(a7, m, m);
    a8 = hn::MulAdd(a8, m, m), a9 = hn::MulAdd(a9, m, m), a10 = hn::MulAdd(a10, m, m), a11 = hn::MulAdd(a11, m, m);
  }
  const V sum =
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
              hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(hn::Add(a8, a9), hn::Add(a10, a11))));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

size_t FlopsPerRound() { return 12 * 2 * hn::Lanes(hn::ScalableTag<float>()); }

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapidary::cpu {

HWY_EXPORT(SumWords);
HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(FlopsPerRound);

namespace {

constexpr int kRuns = 7;
constexpr size_t kBufferBytes = size_t{1} << 30;
constexpr size_t kGrainBytes = size_t{1} << 21;  // a huge page

// Median of the rates of kRuns runs; one before them warms up.
template <typename Task>
double MedianRate(ThreadPool& pool, double amount, const Task& task) {
  std::vector<double> rates;
  for (int run = 0; run <= kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    pool.Run(task);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (run > 0) rates.push_back(amount / seconds);
  }
  std::nth_element(rates.begin(), rates.begin() + kRuns / 2, rates.end());
  return rates[kRuns / 2];
}

// Results are written here so that the work cannot be left out; one cache line for each thread.
struct alignas(64) Sink {
  float value = 0;
};

class Buffer {
 public:
  Buffer() : data_(mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) Throw(ErrorKind::kOutOfMemory, "read bandwidth: found no memory, wanted 1 GiB to read");
    madvise(data_, kBufferBytes, MADV_HUGEPAGE);
  }
  ~Buffer() { munmap(data_, kBufferBytes); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool) {
  const Buffer buffer;
  pool.ParallelFor(kBufferBytes, kGrainBytes,
                   [&](size_t begin, size_t end, int) { std::memset(buffer.data() + begin, 1, end - begin); });
  std::vector<Sink> sinks(static_cast<size_t>(pool.threads()));
  return MedianRate(pool, static_cast<double>(kBufferBytes), [&](int thread) {
    const auto [begin, end] = ThreadPool::Part(kBufferBytes, kGrainBytes, thread, pool.threads());
    const auto* words = reinterpret_cast<const uint32_t*>(buffer.data() + begin);
    sinks[static_cast<size_t>(thread)].value = static_cast<float>(HWY_DYNAMIC_DISPATCH(SumWords)(words, end - begin));
  });
}

double MeasureFmaPeak(ThreadPool& pool) {
  constexpr size_t kRounds = 10'000'000;  // 60 ms at 2 vectors a cycle and 1 GHz
  std::vector<Sink> sinks(static_cast<size_t>(pool.threads()), Sink{0.5f});
  const double flops = static_cast<double>(kRounds * HWY_DYNAMIC_DISPATCH(FlopsPerRound)()) * pool.threads();
  return MedianRate(pool, flops, [&](int thread) {
    float& value = sinks[static_cast<size_t>(thread)].value;
    value = 0.5f + 1e-9f * HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kRounds, 0.5f + 0 * value);
  });
}

}  // namespace lapidary::cpu
#endif  // HWY_ONCE
