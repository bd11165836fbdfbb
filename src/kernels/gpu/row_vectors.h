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
  if (x.rest_parts == 0) return value;
  const float* part = x.rest + (x.rest_parts - 1) * x.rest_stride + at;
  Float8 rest = Load8(part);
#pragma unroll 4
  for (int p = x.rest_parts - 1; p > 0; --p) {
    part -= x.rest_stride;
    const Float8 next = Load8(part);
    for (int i = 0; i < kVector; ++i) rest.v[i] = next.v[i] + rest.v[i];
  }
  for (int i = 0; i < kVector; ++i) value.v[i] += rest.v[i];
  return value;
}

__device__ __forceinline__ float Load1(const RowInput& x, int64_t row, int column) {
  const int64_t at = row * x.stride + column;
  if (x.rest_parts == 0) return x.values[at];
  float rest = x.rest[(x.rest_parts - 1) * x.rest_stride + at];
  for (int p = x.rest_parts - 2; p >= 0; --p) rest = x.rest[p * x.rest_stride + at] + rest;
  return x.values[at] + rest;
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

// The same for two values; `at` is even.
__device__ __forceinline__ void Store2(const RowOutput& out, int64_t at, float first, float second) {
  if (out.values != nullptr) {
    struct alignas(8) Pair {
      float v[2];
    };
    *reinterpret_cast<Pair*>(out.values + at) = {{first, second}};
  }
  if (out.hi == nullptr) return;
  uint32_t terms[3];
  SplitBf16Pair(first, second, terms);
  *reinterpret_cast<uint32_t*>(out.hi + at) = terms[0];
  if (out.lo != nullptr) *reinterpret_cast<uint32_t*>(out.lo + at) = terms[1];
  if (out.third != nullptr) *reinterpret_cast<uint32_t*>(out.third + at) = terms[2];
}

__device__ __forceinline__ void Store8(const RowOutput& out, int64_t at, const Float8& value) {
  if (out.values != nullptr) Store8(out.values + at, value);
  if (out.hi == nullptr) return;
  Words4 terms[3];
  for (int i = 0; i < 4; ++i) {
    uint32_t pairs[3];
    SplitBf16Pair(value.v[2 * i], value.v[2 * i + 1], pairs);
    for (int term = 0; term < 3; ++term) terms[term].v[i] = pairs[term];
  }
  *reinterpret_cast<Words4*>(out.hi + at) = terms[0];
  if (out.lo != nullptr) *reinterpret_cast<Words4*>(out.lo + at) = terms[1];
  if (out.third != nullptr) *reinterpret_cast<Words4*>(out.third + at) = terms[2];
}

}  // namespace lapidary::gpu
