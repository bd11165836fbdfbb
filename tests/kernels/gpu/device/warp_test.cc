#include <gtest/gtest.h>

#include <algorithm>

#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class WarpTest : public GpuTest {};

TEST_F(WarpTest, EveryCollectiveGivesItsLanesValue) {
  std::vector<float> values(96);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 37) % 101) * 0.37f - 11.0f;
  const DeviceArray<float> x(values);
  const DeviceArray<WarpResults> out(values.size());
  RunWarp(gpuStream{}, x.data(), out.data(), 96);
  const std::vector<WarpResults> results = out.ToHost();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t first = i / 32 * 32, lane = i % 32;
    const WarpResults& r = results[i];
    EXPECT_EQ(r.shuffle, values[first + (lane * 5 + 1) % 32]);
    EXPECT_EQ(r.shuffle_xor, values[first + (lane ^ 3)]);
    EXPECT_EQ(r.shuffle_down, values[lane + 7 < 32 ? i + 7 : i]);
    EXPECT_EQ(r.shuffle_up, values[lane >= 7 ? i - 7 : i]);
    EXPECT_EQ(r.wide, static_cast<uint64_t>(i ^ 1) << 40);
    EXPECT_EQ(r.ballot, 0x49249249u);
    EXPECT_EQ(r.any, first == 32 ? 1u : 0u);
    EXPECT_EQ(r.all, 1u);
    EXPECT_EQ(r.max, *std::max_element(values.begin() + static_cast<ptrdiff_t>(first),
                                       values.begin() + static_cast<ptrdiff_t>(first) + 32));
  }
}

TEST_F(WarpTest, SumIsTheTreeOfExchanges) {
  std::vector<float> values(32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = (i % 2 == 0 ? 1.0f : -1.0f) / static_cast<float>(3 * i + 1);
  const DeviceArray<float> x(values);
  const DeviceArray<WarpResults> out(values.size());
  RunWarp(gpuStream{}, x.data(), out.data(), 32);
  std::vector<float> tree = values;
  for (size_t mask = 16; mask > 0; mask /= 2) {
    std::vector<float> next(32);
    for (size_t i = 0; i < 32; ++i) next[i] = tree[i] + tree[i ^ mask];
    tree = next;
  }
  for (const WarpResults& r : out.ToHost()) EXPECT_EQ(r.sum, tree[0]);
}

TEST_F(WarpTest, BlocksSumThroughSharedMemory) {
  const unsigned blocks = 5, threads = 288;
  std::vector<float> values(size_t{blocks} * threads);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17);
  const DeviceArray<float> x(values);
  const DeviceArray<float> out(values.size());
  RunBlockSum(gpuStream{}, x.data(), out.data(), blocks, threads);
  const std::vector<float> sums = out.ToHost();
  for (size_t block = 0; block < blocks; ++block) {
    float sum = 0;  // of integers: exact
    for (size_t i = 0; i < threads; ++i) sum += values[block * threads + i];
    for (size_t i = 0; i < threads; ++i) EXPECT_EQ(sums[block * threads + i], sum);
  }
}

}  // namespace
}  // namespace lapidary::gpu::testing
