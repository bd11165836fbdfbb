#include "kernels/gpu/emulation/grid.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "kernels/gpu/device/common.h"
#include "kernels/gpu/device/dependent_launch.h"
#include "launch_error.h"

namespace lapidary::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

__global__ void NoteIndex(int* counts) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  ++counts[block * blockDim.x + threadIdx.x];
}

__global__ void MeetTwice(const int* in, int* out) {
  LAPIDARY_SHARED(handed, int[1024]);
  const unsigned n = blockDim.x;
  handed[threadIdx.x] = in[blockIdx.x * n + threadIdx.x];
  __syncthreads();
  const int sum = handed[(threadIdx.x + 1) % n] + handed[(threadIdx.x + 7) % n];
  __syncthreads();
  handed[threadIdx.x] = sum;
  __syncthreads();
  out[blockIdx.x * n + threadIdx.x] = handed[n - 1 - threadIdx.x];
}

__global__ void SomeLeaveEarly(unsigned leave) {
  if (threadIdx.x < leave) return;
  __syncthreads();
}

__global__ void ThrowIn(unsigned block) {
  if (threadIdx.x == 40 && blockIdx.x == block) Throw(ErrorKind::kDevice, "found something");
  __syncthreads();
}

__global__ void NoWait() {}
__global__ void OneThreadWaits() {
  if (blockIdx.x == 1 && threadIdx.x == 3) WaitForEarlierKernels();
}

__global__ void LaunchFromWithin() { Launch("Inner", NoWait, {}, gpuStream{}); }

TEST(Grid, RunsEveryThreadOnce) {
  for (const unsigned block : {1u, 7u, 32u, 288u, 1024u}) {
    std::vector<int> counts(size_t{3} * 2 * 2 * block, 0);
    Launch("Launcher", NoteIndex, {.grid_x = 3, .grid_y = 2, .grid_z = 2, .block = block}, gpuStream{}, counts.data());
    EXPECT_EQ(counts, std::vector<int>(counts.size(), 1));
  }
}

std::vector<int> ExpectedMeetings(const std::vector<int>& in, size_t n) {
  std::vector<int> out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t first = i / n * n, mirrored = n - 1 - i % n;
    out[i] = in[first + (mirrored + 1) % n] + in[first + (mirrored + 7) % n];
  }
  return out;
}

TEST(Grid, ThreadsMeetAtBarriers) {
  for (const unsigned block : {1u, 33u, 1024u}) {
    std::vector<int> in(size_t{5} * block), out(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * i % 977);
    Launch("Launcher", MeetTwice, {.grid_x = 5, .block = block}, gpuStream{}, in.data(), out.data());
    EXPECT_EQ(out, ExpectedMeetings(in, block));
  }
}

TEST(Grid, OsThreadsRunGridsOfTheirOwn) {
  std::vector<std::thread> threads;
  std::vector<int> in(640), results[4];
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 31 % 257);
  for (std::vector<int>& out : results) {
    out.resize(in.size());
    threads.emplace_back([&in, &out] {
      for (int round = 0; round < 5; ++round) {
        Launch("Launcher", MeetTwice, {.grid_x = 10, .block = 64}, gpuStream{}, static_cast<const int*>(in.data()),
               out.data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int>& out : results) EXPECT_EQ(out, ExpectedMeetings(in, 64));
}

TEST(Grid, ADeadlockNamesKernelBlockAndBarrier) {
  EXPECT_EQ(LaunchError(SomeLeaveEarly, {.grid_x = 3, .block = 64}, 10u),
            "Launcher, block (0, 0, 0): deadlock: 54 wait at __syncthreads, 10 have ended");
  EXPECT_EQ(LaunchError(SomeLeaveEarly, {.block = 64}, 63u),
            "Launcher, block (0, 0, 0): deadlock: 1 wait at __syncthreads, 63 have ended");
  EXPECT_EQ(LaunchError(SomeLeaveEarly, {.grid_x = 3, .block = 64}, 64u), "");
}

TEST(Grid, AnErrorNamesItsThreadAndEndsTheLaunch) {
  EXPECT_EQ(LaunchError(ThrowIn, {.grid_x = 3, .block = 64}, 2u),
            "Launcher, block (2, 0, 0), thread 40: found something");
  EXPECT_EQ(LaunchError(ThrowIn, {.grid_x = 2, .block = 64}, 2u), "") << "the next launch is not hurt";
}

TEST(Grid, ADependentKernelMustWait) {
  EXPECT_THAT(LaunchError(NoWait, {.grid_x = 2, .block = 32, .dependent = true}), HasSubstr("WaitForEarlierKernels"));
  EXPECT_EQ(LaunchError(OneThreadWaits, {.grid_x = 2, .block = 32, .dependent = true}), "");
  EXPECT_EQ(LaunchError(NoWait, {.grid_x = 2, .block = 32}), "");
}

TEST(Grid, RefusesShapesThatNoDeviceTakes) {
  EXPECT_THAT(LaunchError(NoWait, {.block = 0}), AllOf(HasSubstr("Launcher"), HasSubstr("0 threads")));
  EXPECT_THAT(LaunchError(NoWait, {.block = 1025}), HasSubstr("1025"));
  EXPECT_THAT(LaunchError(NoWait, {.grid_x = 0}), HasSubstr("(0, 1, 1)"));
  EXPECT_THAT(LaunchError(NoWait, {.grid_y = 70000}), HasSubstr("70000"));
  EXPECT_THAT(LaunchError(NoWait, {.grid_x = 6, .cluster = 4}), HasSubstr("clusters of 4"));
  EXPECT_THAT(LaunchError(LaunchFromWithin, {}), HasSubstr("a kernel launched a kernel"));
}

}  // namespace
}  // namespace lapidary::gpu
