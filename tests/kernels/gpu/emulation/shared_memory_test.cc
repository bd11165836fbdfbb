#include "kernels/gpu/emulation/shared_memory.h"

#include <gmock/gmock.h>

#include <vector>

#include "kernels/gpu/device/common.h"
#include "kernels/gpu/emulation/emulated_device.h"
#include "launch_error.h"

namespace lapidary::gpu {
namespace {

using emulation::Device;
using ::testing::AllOf;
using ::testing::HasSubstr;

// found [blocks, 3]: what the block's variables hold when it starts.
__global__ void LookThenWrite(uint32_t* found) {
  LAPIDARY_SHARED(first, uint32_t);
  LAPIDARY_SHARED(second, uint32_t[5]);
  uint32_t* dynamic = DynamicShared<uint32_t>();
  found[blockIdx.x * 3] = first;
  found[blockIdx.x * 3 + 1] = second[4];
  found[blockIdx.x * 3 + 2] = dynamic[9];
  first = second[4] = dynamic[9] = 12;
}

__global__ void UseMuch() {
  LAPIDARY_SHARED(table, unsigned char[8192]);
  table[0] = 0;
}

__global__ void NoteAddresses(uintptr_t* addresses) {
  LAPIDARY_SHARED(one, char);
  LAPIDARY_SHARED(two, char[3]);
  addresses[0] = reinterpret_cast<uintptr_t>(&one);
  addresses[1] = reinterpret_cast<uintptr_t>(&two);
  addresses[2] = reinterpret_cast<uintptr_t>(DynamicShared<char>());
}

// Around the address sanitizer, which would end the program at the write.
__attribute__((no_sanitize("address"))) void WriteByte(unsigned char* at) {
  *static_cast<volatile unsigned char*>(at) = 0;
}

__global__ void WriteBeyond(int where) {
  LAPIDARY_SHARED(table, unsigned char[100]);
  if (where == 0) WriteByte(DynamicShared<unsigned char>() + 64);
  if (where == 1) WriteByte(table + 100);
  if (where == 2) WriteByte(table + 99);
}

TEST(SharedMemory, EachBlockStartsWithPoison) {
  std::vector<uint32_t> found(12);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(LaunchError(LookThenWrite, {.grid_x = 4, .shared_bytes = 40}, found.data()), "");
    EXPECT_EQ(found, std::vector<uint32_t>(12, 0xffffffff));
  }
}

TEST(SharedMemory, StaticAndDynamicTogetherHaveALimit) {
  const auto limit = static_cast<size_t>(Device().shared_bytes_per_block);
  EXPECT_EQ(LaunchError(UseMuch, {.shared_bytes = limit - 8192}), "");
  EXPECT_THAT(LaunchError(UseMuch, {.shared_bytes = limit - 8191}),
              AllOf(HasSubstr(std::to_string(limit + 1)), HasSubstr(std::to_string(limit))));
  EXPECT_THAT(LaunchError(UseMuch, {.shared_bytes = size_t{1} << 63}), HasSubstr("Launcher: wanted"));
}

TEST(SharedMemory, VariablesAreAligned) {
  std::vector<uintptr_t> addresses(3);
  EXPECT_EQ(LaunchError(NoteAddresses, {.shared_bytes = 1}, addresses.data()), "");
  for (const uintptr_t address : addresses) EXPECT_EQ(address % 128, 0u);
}

TEST(SharedMemory, WritesBeyondAVariableAreFound) {
  EXPECT_THAT(LaunchError(WriteBeyond, {.shared_bytes = 64}, 0), HasSubstr("wrote beyond the 64 bytes of the dynamic"));
  EXPECT_THAT(LaunchError(WriteBeyond, {.shared_bytes = 64}, 1),
              HasSubstr("wrote beyond the 100 bytes of a shared variable"));
  EXPECT_EQ(LaunchError(WriteBeyond, {.shared_bytes = 64}, 2), "");
}

}  // namespace
}  // namespace lapidary::gpu
