#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/attention.h"
#include "kv/block_table.h"
#include "model/model_plan.h"

namespace lapidary::cpu {

// The memory behind the K/V blocks of every group: [blocks, slots, 2 (k, v), kv_heads, kKvBlockTokens, head_dim].
// Address space is taken at once, pages as they are first written.
class KvStorage {
 public:
  KvStorage() = default;
  // Throws Error kOutOfMemory.
  KvStorage(const KvLayout& layout, const std::array<int32_t, kKvGroups>& blocks, DType type);
  ~KvStorage();
  KvStorage(KvStorage&& other) noexcept;
  KvStorage& operator=(KvStorage&& other) noexcept;

  int32_t blocks(int group) const { return blocks_[static_cast<size_t>(group)]; }
  // All rows of all layers; the blocks are in [0, blocks(group)).
  void CopyBlock(int group, int32_t from, int32_t to);
  // The keys and values that layer `plan` reads and writes, for a sequence with block table `table`.
  KvBlocks View(const LayerPlan& plan, const BlockTableView& table) const;

 private:
  std::array<std::byte*, kKvGroups> data_{};
  std::array<size_t, kKvGroups> size_bytes_{};
  std::array<int64_t, kKvGroups> block_bytes_{};
  std::array<int32_t, kKvGroups> blocks_{};
  DType type_ = DType::kF32;
};

}  // namespace lapidary::cpu
