#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace lapidary {

// Numbers [0, count) that several threads take from, each number once.
class alignas(64) SharedRange {
 public:
  // Not while others take.
  void Reset(uint32_t count) { left_.store(uint64_t{count} << 32, std::memory_order_relaxed); }

  // Takes an eighth of the numbers that are left, but at least `least` if there are so many, from the front or the
  // back: [taken.first, taken.second). False when none is left.
  bool Take(uint32_t least, bool front, std::pair<uint32_t, uint32_t>& taken) {
    uint64_t left = left_.load(std::memory_order_relaxed);
    while (true) {
      const auto begin = static_cast<uint32_t>(left), end = static_cast<uint32_t>(left >> 32);
      if (begin == end) return false;
      const uint32_t count = end - begin, n = std::min(count, std::max(least, count / 8));
      taken = front ? std::pair(begin, begin + n) : std::pair(end - n, end);
      const uint64_t rest = front ? uint64_t{end} << 32 | (begin + n) : uint64_t{end - n} << 32 | begin;
      if (left_.compare_exchange_weak(left, rest, std::memory_order_relaxed)) return true;
    }
  }

 private:
  std::atomic<uint64_t> left_{0};  // begin in the low half, end in the high half
};

}  // namespace lapidary
