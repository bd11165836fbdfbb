#include "kernels/gpu/emulation/shared_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>

#include "base/error.h"
#include "kernels/gpu/emulation/emulated_device.h"

#if defined(__SANITIZE_ADDRESS__)
#define LAPIDARY_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LAPIDARY_ASAN 1
#endif
#endif
#if defined(LAPIDARY_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace lapidary::gpu::emulation {
namespace {

constexpr size_t kAlignment = 128;
constexpr size_t kGapBytes = 128;
constexpr unsigned char kGapMark = 0xa5;
// More than any device has, with room for the gaps.
constexpr size_t kCapacity = 512 << 10;

}  // namespace

void SharedLayout::Reset(size_t dynamic_bytes) {
  variables_.clear();
  end_ = kGapBytes;
  used_bytes_ = 0;
  Place(nullptr, dynamic_bytes);
}

size_t SharedLayout::Place(const void* key, size_t bytes) {
  for (const Variable& variable : variables_) {
    if (variable.key == key) return variable.offset;
  }
  const auto limit = static_cast<size_t>(Device().shared_bytes_per_block);
  if (bytes > limit - used_bytes_ || end_ + bytes + 2 * kGapBytes > kCapacity) {
    Throw(ErrorKind::kDevice, "wanted " + std::to_string(used_bytes_ + bytes) +
                                  " bytes of shared memory, a block has " + std::to_string(limit));
  }
  variables_.push_back({key, end_, bytes});
  used_bytes_ += bytes;
  end_ += (bytes + kAlignment - 1) / kAlignment * kAlignment + kGapBytes;
  return variables_.back().offset;
}

void SharedMemory::Release::operator()(unsigned char* data) const {
  ASAN_UNPOISON_MEMORY_REGION(data, kCapacity);
  std::free(data);
}

void SharedMemory::BeginBlock(const SharedLayout& layout) {
  if (data_ == nullptr) {
    data_.reset(static_cast<unsigned char*>(std::aligned_alloc(kAlignment, kCapacity)));
    if (data_ == nullptr) throw std::bad_alloc();
  }
  const SharedLayout::Variable& last = layout.variables().back();
  ASAN_POISON_MEMORY_REGION(data_.get(), std::min(kCapacity, last.offset + last.bytes + (64 << 10)));
  for (const SharedLayout::Variable& variable : layout.variables()) AddVariable(variable);
}

void SharedMemory::AddVariable(const SharedLayout::Variable& variable) {
  unsigned char* begin = data_.get() + variable.offset;
  ASAN_UNPOISON_MEMORY_REGION(begin - kGapBytes, variable.bytes + 2 * kGapBytes);
  std::memset(begin - kGapBytes, kGapMark, kGapBytes);
  std::memset(begin, 0xff, variable.bytes);
  std::memset(begin + variable.bytes, kGapMark, kGapBytes);
  ASAN_POISON_MEMORY_REGION(begin - kGapBytes, kGapBytes);
  // From the next multiple of 8, as the sanitizer marks whole granules.
  ASAN_POISON_MEMORY_REGION(begin + variable.bytes, kGapBytes);
}

void SharedMemory::CheckGaps(const SharedLayout& layout) const {
  for (const SharedLayout::Variable& variable : layout.variables()) {
    const unsigned char* gap = data_.get() + variable.offset + variable.bytes;
    ASAN_UNPOISON_MEMORY_REGION(gap, kGapBytes);
    const bool intact = std::all_of(gap, gap + kGapBytes, [](unsigned char byte) { return byte == kGapMark; });
    ASAN_POISON_MEMORY_REGION(gap, kGapBytes);
    if (intact) continue;
    Throw(ErrorKind::kDevice, std::string("wrote beyond the ") + std::to_string(variable.bytes) + " bytes of " +
                                  (variable.key == nullptr ? "the dynamic shared memory" : "a shared variable"));
  }
}

bool SharedMemory::Contains(const void* address) const {
  const auto* byte = static_cast<const unsigned char*>(address);
  return std::greater_equal<>()(byte, data_.get()) && std::less<>()(byte, data_.get() + kCapacity);
}

}  // namespace lapidary::gpu::emulation
