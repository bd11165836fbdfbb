#pragma once

#include <cstdint>

#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/elementwise.h"

// How kernels read and write rows: 8 values a thread, 16 bytes an access.
namespace lapidary::gpu {

struct alignas(16) Float4 {
  float v[4];
};
struct alignas(16) Words4 {
  uint32_t v[4];
};
// What a thread moves at a time.
constexpr int kVector = 8;
struct Float8 {
  float v[kVector];
};

__device__ __forceinline__ int32_t CountOf(RowCount rows) {
  if (rows.count == nullptr) return rows.max;
  const int32_t count = *rows.count;
  return count < rows.max ? count : rows.max;
}

__device__ __forceinline__ Float8 Load8(const float* from) {
  const Float4 a = reinterpret_cast<const Float4*>(from)[0], b = reinterpret_cast<const Float4*>(from)[1];
  return {{a.v[0], a.v[1], a.v[2], a.v[3], b.v[0], b.v[1], b.v[2], b.v[3]}};
}

__device__ __forceinline__ Float8 Load8(const RowInput& x, int64_t row, int column) {
  const int64_t at = row * x.stride + column;
  Float8 value = Load8(x.values + at);
  if (x.second != nullptr) {
    const Float8 second = Load8(x.second + at);
    for (int i = 0; i < kVector; ++i) value.v[i] += second.v[i];
  }
  return value;
}

// bf16 values, the first in the low half of a word.
__device__ __forceinline__ Float8 LoadBf16(const uint16_t* from) {
  const Words4 words = *reinterpret_cast<const Words4*>(from);
  Float8 value;
  for (int i = 0; i < 4; ++i) {
    value.v[2 * i] = Bf16ToFloat(static_cast<uint16_t>(words.v[i] & 0xffffu));
    value.v[2 * i + 1] = Bf16ToFloat(static_cast<uint16_t>(words.v[i] >> 16));
  }
  return value;
}

__device__ __forceinline__ void Store8(float* to, const Float8& value) {
  reinterpret_cast<Float4*>(to)[0] = {{value.v[0], value.v[1], value.v[2], value.v[3]}};
  reinterpret_cast<Float4*>(to)[1] = {{value.v[4], value.v[5], value.v[6], value.v[7]}};
}

__device__ __forceinline__ void Store8(const RowOutput& out, int64_t at, const Float8& value) {
  if (out.values != nullptr) Store8(out.values + at, value);
  if (out.hi == nullptr) return;
  Words4 hi, lo;
  for (int i = 0; i < 4; ++i) {
    const auto a = SplitBf16(value.v[2 * i]), b = SplitBf16(value.v[2 * i + 1]);
    hi.v[i] = static_cast<uint32_t>(a.hi) | static_cast<uint32_t>(b.hi) << 16;
    lo.v[i] = static_cast<uint32_t>(a.lo) | static_cast<uint32_t>(b.lo) << 16;
  }
  *reinterpret_cast<Words4*>(out.hi + at) = hi;
  if (out.lo != nullptr) *reinterpret_cast<Words4*>(out.lo + at) = lo;
}

}  // namespace lapidary::gpu
