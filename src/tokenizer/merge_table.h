#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lapidary {

struct Merge {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t rank = kNone;  // lower merges first
  int32_t result = -1;
};

// (left id, right id) -> merge. Open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(size_t merges);

  // A pair given twice keeps the later merge. No more pairs than the constructor was told.
  void Add(int32_t left, int32_t right, Merge merge);

  Merge Find(int32_t left, int32_t right) const {
    for (size_t at = Home(left, right);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.left == left && slot.right == right) return slot.merge;
      if (slot.left < 0) return {};
    }
  }

 private:
  struct Slot {
    int32_t left = -1;  // -1: empty
    int32_t right = -1;
    Merge merge;
  };
  size_t Home(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15 >> 20) & mask_;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace lapidary
