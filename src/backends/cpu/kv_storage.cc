#include "backends/cpu/kv_storage.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace lapidary::cpu {

static_assert(kBlockPositions == kKvBlockTokens, "kernels and cache agree on the size of a block");

KvStorage::KvStorage(const KvLayout& layout, const std::array<int32_t, kKvGroups>& blocks, DType type)
    : blocks_(blocks), type_(type) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    block_bytes_[g] = layout.groups[g].elements_per_block() * static_cast<int64_t>(SizeOf(type));
    size_bytes_[g] = static_cast<size_t>(block_bytes_[g]) * static_cast<size_t>(blocks[g]);
    if (size_bytes_[g] == 0) continue;
    void* memory =
        ::mmap(nullptr, size_bytes_[g], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      Throw(ErrorKind::kOutOfMemory,
            "cannot reserve " + std::to_string(size_bytes_[g]) + " bytes of K/V cache: " + std::strerror(errno));
    }
    data_[g] = static_cast<std::byte*>(memory);
  }
}

KvStorage::KvStorage(KvStorage&& other) noexcept { *this = std::move(other); }

KvStorage& KvStorage::operator=(KvStorage&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(block_bytes_, other.block_bytes_);
  std::swap(blocks_, other.blocks_);
  std::swap(type_, other.type_);
  return *this;
}

KvStorage::~KvStorage() {
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (data_[g] != nullptr) ::munmap(data_[g], size_bytes_[g]);
  }
}

void KvStorage::CopyBlock(int group, int32_t from, int32_t to) {
  const auto g = static_cast<size_t>(group);
  std::memcpy(data_[g] + to * block_bytes_[g], data_[g] + from * block_bytes_[g], static_cast<size_t>(block_bytes_[g]));
}

KvBlocks KvStorage::View(const LayerPlan& plan, const BlockTableView& table) const {
  const size_t group = static_cast<size_t>(plan.attention);
  const int64_t slot_bytes =
      int64_t{2} * plan.kv_heads * kKvBlockTokens * plan.head_dim * static_cast<int64_t>(SizeOf(type_));
  return {data_[group] + plan.kv_slot * slot_bytes, block_bytes_[group], table.blocks.data(), table.first_block, type_};
}

}  // namespace lapidary::cpu
