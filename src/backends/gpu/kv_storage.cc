#include "backends/gpu/kv_storage.h"

namespace lapidary::gpu {

KvStorage::KvStorage(const KvLayout& layout, const std::array<int32_t, kKvGroups>& blocks, DType type)
    : blocks_(blocks), type_(type) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    const KvGroup& group = layout.groups[g];
    if (group.layers == 0) continue;
    block_bytes_[g] = group.elements_per_block() * static_cast<int64_t>(SizeOf(type));
    slot_bytes_[g] = block_bytes_[g] / group.layers;
    memory_[g] = DeviceMemory(static_cast<size_t>(block_bytes_[g]) * static_cast<size_t>(blocks[g]));
  }
}

void KvStorage::CopyBlock(size_t group, int32_t from, int32_t to, gpuStream stream) {
  auto* data = static_cast<std::byte*>(memory_[group].data());
  CopyOnDevice(data + to * block_bytes_[group], data + from * block_bytes_[group],
               static_cast<size_t>(block_bytes_[group]), stream);
}

}  // namespace lapidary::gpu
