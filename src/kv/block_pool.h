#pragma once

#include <cstdint>
#include <vector>

namespace lapidary {

// Hands out block ids [0, count) of one K/V group and counts references, so that sequences can share blocks. Pure
// bookkeeping: holds no tensor. Freed blocks are handed out again last in, first out, which keeps the touched memory
// small. Not thread-safe.
class BlockPool {
 public:
  // `count` >= 0; Throws Error kInvalidArgument otherwise.
  explicit BlockPool(int32_t count);

  // A block with one reference, or -1 when none is free.
  int32_t Allocate();
  void AddReference(int32_t block);
  // Frees the block when the last reference goes.
  void Release(int32_t block);

  int32_t count() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_count() const { return count() - used_; }

 private:
  std::vector<int32_t> references_;  // [count], 0: free
  std::vector<int32_t> free_;        // freed ids, reused from the back
  int32_t fresh_ = 0;                // ids >= fresh_ were never handed out
  int32_t used_ = 0;
};

}  // namespace lapidary
