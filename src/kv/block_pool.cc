#include "kv/block_pool.h"

#include <cassert>
#include <string>

#include "base/error.h"

namespace lapidary {

BlockPool::BlockPool(int32_t count) {
  if (count < 0) Throw(ErrorKind::kInvalidArgument, "K/V blocks: found " + std::to_string(count) + ", wanted >= 0");
  blocks_.resize(static_cast<size_t>(count));
}

void BlockPool::PushIdle(int32_t id) {
  Block& block = At(id);
  IdleList& list = ListOf(block);
  block.previous = list.back;
  block.next = -1;
  (list.back < 0 ? list.front : At(list.back).next) = id;
  list.back = id;
  ++kept_idle_;
}

void BlockPool::RemoveIdle(int32_t id) {
  Block& block = At(id);
  IdleList& list = ListOf(block);
  (block.previous < 0 ? list.front : At(block.previous).next) = block.next;
  (block.next < 0 ? list.back : At(block.next).previous) = block.previous;
  --kept_idle_;
}

int32_t BlockPool::Evict() {
  const int32_t id = others_.front >= 0 ? others_.front : useful_.front;
  if (id < 0) return -1;
  RemoveIdle(id);
  At(id).kept = false;
  if (evicted_) evicted_(id);
  return id;
}

int32_t BlockPool::Allocate() {
  int32_t id = -1;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (fresh_ < count()) {
    id = fresh_++;
  } else if (id = Evict(); id < 0) {
    return -1;
  }
  At(id) = {.references = 1};
  ++used_;
  return id;
}

void BlockPool::AddReference(int32_t id) {
  Block& block = At(id);
  assert(block.references > 0 || block.kept);
  if (block.references++ > 0) return;
  RemoveIdle(id);
  ++used_;
}

void BlockPool::Release(int32_t id) {
  Block& block = At(id);
  assert(block.references > 0);
  if (--block.references > 0) return;
  --used_;
  if (block.kept) {
    PushIdle(id);
  } else {
    free_.push_back(id);
  }
}

void BlockPool::Keep(int32_t id) {
  assert(At(id).references > 0);
  At(id).kept = true;
}

void BlockPool::Drop(int32_t id) {
  Block& block = At(id);
  assert(block.kept);
  if (block.references == 0) {
    RemoveIdle(id);
    free_.push_back(id);
  }
  block.kept = false;
}

void BlockPool::MarkUseful(int32_t id) {
  Block& block = At(id);
  if (block.useful) return;
  const bool idle = block.references == 0 && block.kept;
  if (idle) RemoveIdle(id);
  block.useful = true;
  if (idle) PushIdle(id);
}

}  // namespace lapidary
