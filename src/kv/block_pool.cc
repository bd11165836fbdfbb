#include "kv/block_pool.h"

#include <cassert>
#include <string>

#include "base/error.h"

namespace lapidary {

BlockPool::BlockPool(int32_t count) {
  if (count < 0) Throw(ErrorKind::kInvalidArgument, "K/V blocks: found " + std::to_string(count) + ", wanted >= 0");
  references_.assign(static_cast<size_t>(count), 0);
}

int32_t BlockPool::Allocate() {
  int32_t block = -1;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (fresh_ < count()) {
    block = fresh_++;
  } else {
    return -1;
  }
  references_[static_cast<size_t>(block)] = 1;
  ++used_;
  return block;
}

void BlockPool::AddReference(int32_t block) {
  assert(references_[static_cast<size_t>(block)] > 0);
  ++references_[static_cast<size_t>(block)];
}

void BlockPool::Release(int32_t block) {
  int32_t& references = references_[static_cast<size_t>(block)];
  assert(references > 0);
  if (--references > 0) return;
  free_.push_back(block);
  --used_;
}

}  // namespace lapidary
