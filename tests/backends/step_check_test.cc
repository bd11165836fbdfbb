#include "backends/step_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

// Full attention alone, 100 ids, two cache blocks.
class StepCheckTest : public ::testing::Test {
 protected:
  StepCheckTest() {
    plan_.config.vocab_size = 100;
    plan_.kv.groups[static_cast<size_t>(AttentionType::kFull)] = {1, 1, 32, 0};
    tables_.resize(1);
    tables_[0][static_cast<size_t>(AttentionType::kFull)] = {0, blocks_};
  }

  // What the check says; empty when it says nothing.
  std::string Check() {
    try {
      CheckStep(plan_, {2, 2}, {ids_, positions_, sequences_, tables_, logit_rows_, true});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      return error.what();
    }
    return "";
  }

  ModelPlan plan_;
  std::vector<int32_t> blocks_ = {1, 0};
  std::vector<std::array<BlockTableView, kKvGroups>> tables_;
  std::vector<int32_t> ids_ = {5, 99}, positions_ = {63, 64}, sequences_ = {0, 0}, logit_rows_ = {1};
};

TEST_F(StepCheckTest, TakesAStepInOrder) { EXPECT_EQ(Check(), ""); }

TEST_F(StepCheckTest, Rows) {
  ids_.clear();
  EXPECT_THAT(Check(), HasSubstr("found no rows"));
  ids_ = {5};
  EXPECT_THAT(Check(), HasSubstr("different lengths"));
  ids_ = {5, 100};
  EXPECT_THAT(Check(), HasSubstr("found 100, wanted 0 to 99"));
  ids_ = {5, -1};
  EXPECT_THAT(Check(), HasSubstr("found -1"));
}

TEST_F(StepCheckTest, LogitRowsRise) {
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{2}, {-1}, {1, 0}, {1, 1}}) {
    logit_rows_ = rows;
    EXPECT_THAT(Check(), HasSubstr("logit rows"));
  }
}

TEST_F(StepCheckTest, TablesCoverThePositions) {
  positions_ = {127, 128};
  EXPECT_THAT(Check(), HasSubstr("does not cover position 128"));
  positions_ = {63, -2};
  EXPECT_THAT(Check(), HasSubstr("found -2"));
  positions_ = {63, 64};
  blocks_[1] = 2;
  EXPECT_THAT(Check(), HasSubstr("does not cover position 64"));
  sequences_ = {0, 1};
  EXPECT_THAT(Check(), HasSubstr("no tables"));
}

TEST_F(StepCheckTest, RoomAndCacheType) {
  CheckRoom("logits", 5, 5);
  EXPECT_THROW(CheckRoom("logits", 4, 5), Error);
  CheckKvType(DType::kBF16);
  EXPECT_THROW(CheckKvType(DType::kF16), Error);
}

}  // namespace
}  // namespace lapidary
