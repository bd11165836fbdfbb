#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lapidary {

// Hands out block ids [0, count) of one K/V group and counts references, so that sequences can share blocks. Pure
// bookkeeping: holds no tensor. A block whose last reference goes is free, or, when it is marked as kept, stays as it
// is until its room is needed. Freed blocks are handed out again last in, first out, which keeps the touched memory
// small. Not thread-safe.
class BlockPool {
 public:
  // `count` >= 0; Throws Error kInvalidArgument otherwise.
  explicit BlockPool(int32_t count);

  // Called with each kept block that is given up for a new one, which then is no longer kept.
  void OnEviction(std::function<void(int32_t block)> evicted) { evicted_ = std::move(evicted); }

  // A block with one reference: a free one, else the kept one without references that lost its last one first, the
  // useful ones after all others. -1 when there is none.
  int32_t Allocate();
  // The block has references, or is kept.
  void AddReference(int32_t id);
  void Release(int32_t id);

  // Keeps the block when its last reference goes. It has references.
  void Keep(int32_t id);
  // Takes Keep back.
  void Drop(int32_t id);
  // Worth more than others as long as it is not handed out anew.
  void MarkUseful(int32_t id);

  int32_t count() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t references(int32_t block) const { return blocks_[static_cast<size_t>(block)].references; }
  int32_t used_count() const { return used_; }       // with references
  int32_t kept_count() const { return kept_idle_; }  // kept, without references
  int32_t free_count() const { return count() - used_ - kept_idle_; }
  int32_t available_count() const { return count() - used_; }  // that Allocate can give

 private:
  struct Block {
    int32_t references = 0;
    bool kept = false, useful = false;
    int32_t previous = -1, next = -1;  // in a list of idle blocks
  };
  // Kept blocks without references, the one that is given up first in front.
  struct IdleList {
    int32_t front = -1, back = -1;
  };

  Block& At(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
  IdleList& ListOf(const Block& block) { return block.useful ? useful_ : others_; }
  void PushIdle(int32_t id);
  void RemoveIdle(int32_t id);
  int32_t Evict();

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;  // freed ids, reused from the back
  int32_t fresh_ = 0;          // ids >= fresh_ were never handed out
  int32_t used_ = 0;
  int32_t kept_idle_ = 0;
  IdleList useful_, others_;
  std::function<void(int32_t)> evicted_;
};

}  // namespace lapidary
