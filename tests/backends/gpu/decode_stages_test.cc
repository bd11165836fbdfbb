#include "backends/gpu/decode_stages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/gpu/decode_step.h"

namespace lapidary::gpu {
namespace {

TEST(DecodeStages, AddsLayersAndTakesTheMeanOfBlocks) {
  constexpr int kBlocks = 2, kLayers = 2;
  std::vector<int64_t> marks(kBlocks * (kLayers + 1) * kDecodeMarks);
  const auto set = [&](int block, int layer, int mark, int64_t time) {
    marks[static_cast<size_t>((block * (kLayers + 1) + layer) * kDecodeMarks + mark)] = time;
  };
  // q, k, v: the input takes 100 and 300 ns in layer 0, 50 in layer 1 of the one block that has any.
  set(0, 0, 0, 1000), set(0, 0, 1, 1100), set(1, 0, 0, 1000), set(1, 0, 1, 1300);
  set(0, 1, 0, 2000), set(0, 1, 1, 2050);
  // The query is awaited from the turn of o on.
  set(1, 0, 1 * kDecodeMarksOfProduct, 1400), set(1, 0, kDecodeAttentionMarks, 1900);
  const std::vector<KernelTime> stages = DecodeStages(marks, kBlocks, kLayers);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].name, "qkv_proj: input");
  EXPECT_TRUE(stages[0].is_stage);
  EXPECT_EQ(stages[0].launches, 2);
  EXPECT_NEAR(stages[0].seconds, 250e-9, 1e-12);
  EXPECT_EQ(stages[1].name, "attention: query");
  EXPECT_EQ(stages[1].launches, 1);
  EXPECT_NEAR(stages[1].seconds, 500e-9, 1e-12);
}

}  // namespace
}  // namespace lapidary::gpu
