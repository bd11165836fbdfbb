#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "device_array.h"
#include "kernels/gpu/kv_cache.h"

namespace lapidary::gpu::testing {

inline std::vector<float> RandomFloats(size_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// Attention of few rows reads so many of them, whatever their number.
inline constexpr size_t kPaddedRows = 8;

// The rows of a step in device memory, with the tables that rotate them.
struct DeviceRows {
  DeviceArray<int32_t> count, positions, sequences;
  DeviceArray<float> cos, sin;
  int32_t pairs = 0;

  StepRowsView View() const { return {count.data(), positions.data(), sequences.data()}; }
  RopeTableView Rope() const { return {cos.data(), sin.data(), pairs}; }
};

inline DeviceRows MakeRows(const std::vector<int32_t>& positions, const std::vector<int32_t>& sequences, int head_dim,
                           int pairs, double theta) {
  std::vector<float> cos, sin;
  std::vector<int32_t> padded_positions = positions, padded_sequences = sequences;
  for (std::vector<int32_t>* padded : {&padded_positions, &padded_sequences}) {
    padded->resize(std::max(padded->size(), kPaddedRows), 0x70000000);
  }
  for (const int32_t position : positions) {
    for (int j = 0; j < pairs; ++j) {
      const double angle = position * std::pow(theta, -2.0 * j / head_dim);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return {DeviceArray<int32_t>(std::vector<int32_t>{static_cast<int32_t>(positions.size())}),
          DeviceArray<int32_t>(padded_positions),
          DeviceArray<int32_t>(padded_sequences),
          DeviceArray<float>(cos),
          DeviceArray<float>(sin),
          pairs};
}

// The cache of one layer for several sequences, on the host; unwritten places hold NaN. Blocks lie in shuffled order.
class PagedCache {
 public:
  struct Sequence {
    int32_t positions = 0;    // room for so many
    int32_t first_block = 0;  // blocks before it are gone
  };

  PagedCache(int kv_heads, int head_dim, DType type, const std::vector<Sequence>& sequences)
      : kv_heads_(kv_heads), head_dim_(head_dim), type_(type) {
    size_t count = 0;
    for (const Sequence& s : sequences) {
      max_blocks_ = std::max(max_blocks_, BlocksOf(s));
      count += static_cast<size_t>(BlocksOf(s));
    }
    std::vector<int32_t> places(count + 2);
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
    std::shuffle(places.begin(), places.end(), std::mt19937(7));
    // Room that no block of the layer needs, as if other layers' slots followed.
    block_bytes_ = 2 * static_cast<size_t>(kv_heads * kBlockPositions * head_dim) * SizeOf(type) + 64;
    memory_.assign(block_bytes_ * places.size(), 0xff);
    for (const Sequence& s : sequences) {
      first_block_.push_back(s.first_block);
      for (int32_t b = 0; b < max_blocks_; ++b) {
        const bool exists = b < BlocksOf(s);
        blocks_.push_back(exists ? places.back() : 0x70000000);
        if (exists) places.pop_back();
      }
    }
  }

  // Where vector `is_v` of `kv_head` at a position lies.
  size_t Offset(int32_t sequence, int32_t position, int kv_head, bool is_v) const {
    const auto entry =
        sequence * max_blocks_ + position / kBlockPositions - first_block_[static_cast<size_t>(sequence)];
    const auto vector = static_cast<size_t>((is_v ? kv_heads_ : 0) + kv_head);
    return static_cast<size_t>(blocks_[static_cast<size_t>(entry)]) * block_bytes_ +
           (vector * kBlockPositions + static_cast<size_t>(position % kBlockPositions)) *
               static_cast<size_t>(head_dim_) * SizeOf(type_);
  }

  // Writes random k and v [positions, kv_heads, head_dim] of positions that have a block; returns them as stored.
  struct Content {
    std::vector<float> k, v;
  };
  Content Write(int32_t sequence, int32_t positions, unsigned seed, float k_scale) {
    const size_t width = static_cast<size_t>(kv_heads_ * head_dim_);
    Content content{RandomFloats(static_cast<size_t>(positions) * width, seed, k_scale),
                    RandomFloats(static_cast<size_t>(positions) * width, seed + 1)};
    for (int32_t p = 0; p < positions; ++p) {
      for (int h = 0; h < kv_heads_; ++h) {
        const size_t at = static_cast<size_t>(p) * width + static_cast<size_t>(h * head_dim_);
        const bool gone = p < first_block_[static_cast<size_t>(sequence)] * kBlockPositions;
        StoreVector(content.k.data() + at, gone ? nullptr : memory_.data() + Offset(sequence, p, h, false));
        StoreVector(content.v.data() + at, gone ? nullptr : memory_.data() + Offset(sequence, p, h, true));
      }
    }
    return content;
  }

  // To device memory; later changes on the host do not follow.
  void Upload() {
    device_memory_.emplace(memory_);
    device_blocks_.emplace(blocks_);
    device_first_block_.emplace(first_block_);
  }
  KvCacheView View() const {
    return {reinterpret_cast<std::byte*>(device_memory_->data()),
            static_cast<int64_t>(block_bytes_),
            device_blocks_->data(),
            device_first_block_->data(),
            max_blocks_,
            type_ == DType::kBF16};
  }
  std::vector<unsigned char> Read() const { return device_memory_->ToHost(); }
  const std::vector<unsigned char>& memory() const { return memory_; }

 private:
  static int32_t BlocksOf(const Sequence& s) {
    return (s.positions + kBlockPositions - 1) / kBlockPositions - s.first_block;
  }
  // Rounds the vector as the cache does, and stores it unless `to` is null.
  void StoreVector(float* x, unsigned char* to) const {
    for (int i = 0; i < head_dim_; ++i) {
      if (type_ == DType::kF32) {
        if (to != nullptr) std::memcpy(to + i * 4, &x[i], 4);
        continue;
      }
      const BF16 bits = ToBF16(x[i]);
      x[i] = ToFloat(bits);
      if (to != nullptr) std::memcpy(to + i * 2, &bits, 2);
    }
  }

  int kv_heads_, head_dim_;
  DType type_;
  int32_t max_blocks_ = 0;
  size_t block_bytes_ = 0;
  std::vector<unsigned char> memory_;
  std::vector<int32_t> blocks_, first_block_;
  std::optional<DeviceArray<unsigned char>> device_memory_;
  std::optional<DeviceArray<int32_t>> device_blocks_, device_first_block_;
};

}  // namespace lapidary::gpu::testing
