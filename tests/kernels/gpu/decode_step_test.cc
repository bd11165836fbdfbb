#include "kernels/gpu/decode_step.h"

#include <gtest/gtest.h>

namespace lapidary::gpu {
namespace {

// What a block of compute capability 9.0 and 8.6 can have.
TEST(DecodeStep, FitsWhereABlockHasTheSharedMemory) {
  EXPECT_TRUE(DecodeStepFits(227 << 10));
  EXPECT_FALSE(DecodeStepFits(99 << 10));
}

TEST(DecodeStep, NamesTheStageAndTheLayerOfAStuckWait) {
  EXPECT_EQ(NameOfStuck(1u << 16 | 1), "attention of layer 0");
  EXPECT_EQ(NameOfStuck((3u + static_cast<uint32_t>(DecodeMatrix::kDown)) << 16 | 8), "down_proj of layer 7");
}

}  // namespace
}  // namespace lapidary::gpu
