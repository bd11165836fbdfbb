#include "kernels/gpu/emulation/collectives.h"

#include <gmock/gmock.h>

#include "kernels/gpu/device/cluster.h"
#include "kernels/gpu/device/mma.h"
#include "kernels/gpu/device/warp.h"
#include "launch_error.h"

namespace lapidary::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

__global__ void Diverge() {
  if (threadIdx.x % 32 < 5) {
    WarpSync();
  } else {
    WarpSum(1.0f);
  }
}

__global__ void HalfAWarp() {
  if (threadIdx.x % 32 < 16) WarpSum(1.0f);
}

__global__ void Sum() { WarpSum(1); }

__global__ void MeetAt(int id, int threads, int others) { NamedBarrier(id, threadIdx.x == 0 ? threads : others); }

__global__ void LoadAt(const unsigned char* bytes, int offset) { LoadGlobal16(bytes + offset); }

__global__ void LoadRows(unsigned offset) {
  LAPIDARY_SHARED(tile, uint16_t[512]);
  uint32_t r[4];
  LoadMatrixX4(r, tile + threadIdx.x * 8 + offset);
}

__global__ void ReachOut(unsigned rank) {
  LAPIDARY_SHARED(value, int);
  value = 0;
  ClusterSync();
  *ClusterShared(&value, rank) = 1;
  ClusterSync();
}

__global__ void ReachOutOfShared(int* global) { ClusterShared(global, 0); }

__global__ void SomeSkipTheCluster() {
  if (ClusterRank() != 1) ClusterSync();
}

TEST(Collectives, LanesMustBeAtTheSameOne) {
  EXPECT_THAT(LaunchError(Diverge, {.block = 32}), AllOf(HasSubstr("thread 5: WarpSum"), HasSubstr("at WarpSync")));
  EXPECT_EQ(LaunchError(HalfAWarp, {.block = 64}),
            "Launcher, block (0, 0, 0): deadlock: 32 wait at WarpSum, 32 have ended");
}

TEST(Collectives, WarpsMustBeWhole) {
  EXPECT_THAT(LaunchError(Sum, {.block = 48}), AllOf(HasSubstr("thread 32"), HasSubstr("16 threads, wanted are 32")));
  EXPECT_EQ(LaunchError(Sum, {.block = 64}), "");
}

TEST(Collectives, NamedBarriersAreChecked) {
  EXPECT_EQ(LaunchError(MeetAt, {.block = 64}, 15, 64, 64), "");
  EXPECT_THAT(LaunchError(MeetAt, {.block = 64}, 16, 64, 64), HasSubstr("NamedBarrier 16"));
  EXPECT_THAT(LaunchError(MeetAt, {.block = 64}, 0, 64, 64), HasSubstr("NamedBarrier 0"));
  EXPECT_THAT(LaunchError(MeetAt, {.block = 64}, 3, 40, 40), HasSubstr("40 threads"));
  EXPECT_THAT(LaunchError(MeetAt, {.block = 64}, 3, 96, 96), HasSubstr("96 threads"));
  EXPECT_THAT(LaunchError(MeetAt, {.block = 64}, 3, 32, 64), AllOf(HasSubstr("thread 1"), HasSubstr("for 32")));
  EXPECT_THAT(LaunchError(MeetAt, {.block = 96}, 3, 64, 64), HasSubstr("32 wait at NamedBarrier 3, 64 have ended"));
}

TEST(Collectives, SixteenBytesAreAligned) {
  alignas(16) unsigned char bytes[64] = {};
  EXPECT_EQ(LaunchError(LoadAt, {}, static_cast<const unsigned char*>(bytes), 32), "");
  EXPECT_THAT(LaunchError(LoadAt, {}, static_cast<const unsigned char*>(bytes), 8), HasSubstr("LoadGlobal16"));
  EXPECT_EQ(LaunchError(LoadRows, {.block = 32}, 8u), "");
  EXPECT_THAT(LaunchError(LoadRows, {.block = 32}, 4u), AllOf(HasSubstr("LoadMatrixX4"), HasSubstr("8 beyond")));
}

TEST(Collectives, ClustersReachTheirOwnBlocksOnly) {
  int global = 0;
  EXPECT_EQ(LaunchError(ReachOut, {.grid_x = 4, .block = 32, .cluster = 2}, 1u), "");
  EXPECT_THAT(LaunchError(ReachOut, {.grid_x = 4, .block = 32, .cluster = 2}, 2u), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(LaunchError(ReachOutOfShared, {}, &global), HasSubstr("not in shared memory"));
  EXPECT_THAT(LaunchError(SomeSkipTheCluster, {.grid_x = 2, .block = 32, .cluster = 2}),
              HasSubstr("32 wait at ClusterSync, 32 have ended"));
}

}  // namespace
}  // namespace lapidary::gpu
