#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "synth/synth_fill.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "synth/synth.h"

HWY_BEFORE_NAMESPACE();
namespace lapidary {
namespace HWY_NAMESPACE {

// Plain loops: compiled once per target, the compiler's vectorizer does the rest. Two loops, because the first works on
// 64-bit lanes and the second on 32-bit ones.
void FillRun(uint64_t state, float mean, float amp, uint16_t* HWY_RESTRICT out, size_t count) {
  constexpr size_t kRun = 1024;
  int32_t top[kRun];
  for (size_t start = 0; start < count; start += kRun) {
    const size_t run = count - start < kRun ? count - start : kRun;
    for (size_t i = 0; i < run; ++i) {
      uint64_t z = state + (start + i) * 0x9E3779B97F4A7C15u;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      top[i] = static_cast<int32_t>((z ^ (z >> 31)) >> 40);
    }
    for (size_t i = 0; i < run; ++i) {
      const float u = static_cast<float>(top[i]) * 0x1p-23f - 1.0f;
      const float product = amp * u;
      const float value = mean + product;
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      out[start + i] = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lapidary
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapidary {
namespace {

HWY_EXPORT(FillRun);

uint64_t Fnv1a64(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace

void SynthFill(const std::string& name, float mean, float amp, int64_t first, std::span<BF16> out) {
  const uint64_t state = Fnv1a64(name) + (static_cast<uint64_t>(first) + 1) * 0x9E3779B97F4A7C15u;
  static_assert(sizeof(BF16) == sizeof(uint16_t));
  static_assert(alignof(BF16) == alignof(uint16_t));
  HWY_DYNAMIC_DISPATCH(FillRun)(state, mean, amp, reinterpret_cast<uint16_t*>(out.data()), out.size());
}

}  // namespace lapidary
#endif  // HWY_ONCE
