#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lapidary {

// Element types that weights and caches are stored in.
enum class DType : uint8_t { kF32, kF16, kBF16 };

constexpr size_t SizeOf(DType type) { return type == DType::kF32 ? 4 : 2; }

constexpr std::string_view NameOf(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
  }
  return "?";
}

// Raw bits of a bfloat16: the upper half of a float32.
struct BF16 {
  uint16_t bits;
};

constexpr float ToFloat(BF16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

// Rounds to nearest even; a NaN stays a NaN.
constexpr BF16 ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace lapidary
