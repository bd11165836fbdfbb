#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/gpu/runtime.h"
#include "model/kv_layout.h"

namespace lapidary::gpu {

// The device memory behind the K/V blocks of every group: [blocks, slots, 2 (k, v), kv_heads, kKvBlockTokens,
// head_dim].
class KvStorage {
 public:
  KvStorage() = default;
  // Throws Error kOutOfMemory.
  KvStorage(const KvLayout& layout, const std::array<int32_t, kKvGroups>& blocks, DType type);

  // Copies block `from` of a group to block `to`, in the order of `stream`.
  void CopyBlock(size_t group, int32_t from, int32_t to, gpuStream stream);

  int32_t blocks(size_t group) const { return blocks_[group]; }
  int64_t block_bytes(size_t group) const { return block_bytes_[group]; }
  bool is_bf16() const { return type_ == DType::kBF16; }
  // Slot `slot` of block 0.
  std::byte* slot(size_t group, int slot) const {
    return static_cast<std::byte*>(memory_[group].data()) + slot * slot_bytes_[group];
  }

 private:
  std::array<DeviceMemory, kKvGroups> memory_;
  std::array<int64_t, kKvGroups> block_bytes_{}, slot_bytes_{};
  std::array<int32_t, kKvGroups> blocks_{};
  DType type_ = DType::kF32;
};

}  // namespace lapidary::gpu
