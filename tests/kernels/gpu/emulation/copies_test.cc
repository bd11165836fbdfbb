#include <gmock/gmock.h>

#include <vector>

#include "kernels/gpu/device/async_copy.h"
#include "launch_error.h"

namespace lapidary::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

enum class Fault {
  kNone,
  kNoInit,
  kUnalignedSource,
  kUnalignedTarget,
  kSize,
  kExpectBeforeCopy,
  kWrongBytes,
  kNoExpect,
  kNoWait,
  kFromShared,
  kTooFewArrivals,
};

// One thread copies 64 bytes and waits. seen: the first word before the wait and after.
__global__ void CopyOnce(const unsigned char* from, uint32_t* seen, Fault fault) {
  LAPIDARY_SHARED(barrier, Mbarrier);
  LAPIDARY_SHARED(target, unsigned char[128]);
  if (fault != Fault::kNoInit) MbarrierInit(&barrier, fault == Fault::kTooFewArrivals ? 2 : 1);
  FenceBarrierInit();
  if (fault == Fault::kExpectBeforeCopy) MbarrierArriveExpectTx(&barrier, 64);
  const void* source = fault == Fault::kFromShared ? target + 64 : from + (fault == Fault::kUnalignedSource ? 4 : 0);
  BulkCopy(target + (fault == Fault::kUnalignedTarget ? 8 : 0), source, fault == Fault::kSize ? 60 : 64, &barrier);
  if (fault != Fault::kNoExpect) MbarrierArriveExpectTx(&barrier, fault == Fault::kWrongBytes ? 32 : 64);
  std::memcpy(&seen[0], target, 4);
  if (fault == Fault::kNoWait) return;
  MbarrierWait(&barrier, 0);
  std::memcpy(&seen[1], target, 4);
}

class CopiesTest : public ::testing::Test {
 protected:
  std::string Run(Fault fault) {
    return LaunchError(CopyOnce, {}, static_cast<const unsigned char*>(from_), static_cast<uint32_t*>(seen_), fault);
  }
  alignas(16) unsigned char from_[80] = {1, 2, 3, 4};
  uint32_t seen_[2] = {};
};

TEST_F(CopiesTest, BytesComeWithTheWaitAndNotBefore) {
  EXPECT_EQ(Run(Fault::kNone), "");
  EXPECT_EQ(seen_[0], 0xffffffffu);
  EXPECT_EQ(seen_[1], 0x04030201u);
}

TEST_F(CopiesTest, MisuseIsToldByName) {
  EXPECT_THAT(Run(Fault::kNoInit), AllOf(HasSubstr("BulkCopy"), HasSubstr("not been initialized")));
  EXPECT_THAT(Run(Fault::kUnalignedSource), HasSubstr("BulkCopy: an address is 4 beyond"));
  EXPECT_THAT(Run(Fault::kUnalignedTarget), HasSubstr("BulkCopy: an address is 8 beyond"));
  EXPECT_THAT(Run(Fault::kSize), HasSubstr("60 bytes"));
  EXPECT_THAT(Run(Fault::kExpectBeforeCopy), HasSubstr("expects 64 bytes, the thread's bulk copies before it have 0"));
  EXPECT_THAT(Run(Fault::kWrongBytes), HasSubstr("expects 32 bytes, the thread's bulk copies before it have 64"));
  EXPECT_THAT(Run(Fault::kNoExpect), HasSubstr("1 wait at MbarrierWait"));
  EXPECT_THAT(Run(Fault::kNoWait), HasSubstr("ended while a bulk copy was under way"));
  EXPECT_THAT(Run(Fault::kFromShared), HasSubstr("from shared memory"));
  EXPECT_THAT(Run(Fault::kTooFewArrivals), HasSubstr("1 wait at MbarrierWait"));
  EXPECT_EQ(Run(Fault::kNone), "");
}

// Waits for `pending` groups to be left after three were committed; out: the first word of each.
template <int kPending>
__global__ void CopyGroups(const unsigned char* from, uint32_t* out) {
  LAPIDARY_SHARED(target, unsigned char[3][16]);
  for (int i = 0; i < 3; ++i) {
    CpAsync16OrZero(target[i], from + 16 * i, i != 1);
    CpAsyncCommit();
  }
  CpAsyncWait<kPending>();
  for (int i = 0; i < 3; ++i) std::memcpy(&out[i], target[i], 4);
}

TEST(CpAsync, OnlyGroupsThatWereWaitedForHaveCome) {
  alignas(16) unsigned char from[48] = {7};
  from[32] = 9;
  std::vector<uint32_t> out(3);
  const unsigned char* source = from;
  EXPECT_EQ(LaunchError(CopyGroups<2>, {}, source, out.data()), "");
  EXPECT_EQ(out, (std::vector<uint32_t>{7, 0xffffffff, 0xffffffff}));
  EXPECT_EQ(LaunchError(CopyGroups<1>, {}, source, out.data()), "");
  EXPECT_EQ(out, (std::vector<uint32_t>{7, 0, 0xffffffff}));
  EXPECT_EQ(LaunchError(CopyGroups<0>, {}, source, out.data()), "");
  EXPECT_EQ(out, (std::vector<uint32_t>{7, 0, 9}));
  EXPECT_THAT(LaunchError(CopyGroups<0>, {}, source + 8, out.data()), HasSubstr("CpAsync16: an address is 8 beyond"));
}

}  // namespace
}  // namespace lapidary::gpu
