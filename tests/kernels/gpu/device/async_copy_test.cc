#include <gtest/gtest.h>

#include <array>

#include "device/helper_kernels.h"
#include "device_array.h"

namespace lapidary::gpu::testing {
namespace {

class AsyncCopyTest : public GpuTest {};

TEST_F(AsyncCopyTest, BulkCopiesStreamThroughARing) {
  for (const int tiles : {1, 2, 3, 4, 17}) {
    std::vector<uint32_t> words(static_cast<size_t>(tiles) * 256);
    for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i * 2654435761u);
    const DeviceArray<uint32_t> in(words), out(words.size());
    RunRing(gpuStream{}, in.data(), out.data(), tiles);
    for (uint32_t& word : words) ++word;
    EXPECT_EQ(out.ToHost(), words) << tiles;
  }
}

TEST_F(AsyncCopyTest, GroupsAreWaitedForInOrder) {
  using Piece = std::array<uint32_t, 4>;
  const size_t tiles = 5, threads = 64, valid = 300;
  std::vector<Piece> values(tiles * threads);
  for (uint32_t i = 0; i < values.size(); ++i) values[i] = {i, i + 1000, i * 7, ~i};
  const DeviceArray<Piece> in(values), out(values.size());
  RunCpAsync(gpuStream{}, in.data(), out.data(), tiles, valid);
  const std::vector<Piece> result = out.ToHost();
  for (size_t tile = 0; tile < tiles; ++tile) {
    for (size_t i = 0; i < threads; ++i) {
      const size_t from = tile * threads + (i + 1) % threads;
      EXPECT_EQ(result[tile * threads + i], from < valid ? values[from] : Piece{}) << tile << " " << i;
    }
  }
}

}  // namespace
}  // namespace lapidary::gpu::testing
