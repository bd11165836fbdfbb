#include "backends/gpu/step_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "testing/test_backend.h"

namespace lapidary::gpu {
namespace {

using ::testing::ElementsAre;

class StepInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoTestBackend(); !why.empty()) GTEST_SKIP() << why;
  }

  static std::vector<int32_t> Read(const int32_t* device, size_t count) {
    std::vector<int32_t> values(count);
    CopyToHost(values.data(), device, count * sizeof(int32_t), nullptr);
    Synchronize(nullptr);
    return values;
  }

  void Send(const std::vector<int32_t>& logit_rows) {
    input_.Send({ids_, positions_, sequences_, tables_, logit_rows, true}, nullptr);
    Synchronize(nullptr);
  }

  std::vector<int32_t> ids_ = {7, 8, 9}, positions_ = {64, 65, 3}, sequences_ = {0, 0, 1};
  std::vector<int32_t> sliding_ = {5}, full_ = {2, 4}, other_ = {1};
  std::vector<std::array<BlockTableView, kKvGroups>> tables_ = {{BlockTableView{1, sliding_}, BlockTableView{0, full_}},
                                                                {BlockTableView{0, other_}, BlockTableView{0, other_}}};
  StepInput input_;
};

TEST_F(StepInputTest, RowsTablesAndKeptRows) {
  Send({1, 2});
  EXPECT_THAT(Read(input_.count(), 1), ElementsAre(3));
  EXPECT_THAT(Read(input_.ids(), 5), ElementsAre(7, 8, 9, 0, 0));
  EXPECT_THAT(Read(input_.rows().positions, 3), ElementsAre(64, 65, 3));
  EXPECT_THAT(Read(input_.rows().sequences, 3), ElementsAre(0, 0, 1));
  EXPECT_THAT(Read(input_.logit_rows(), 2), ElementsAre(1, 2));
  EXPECT_THAT(Read(input_.kept_rows().count, 1), ElementsAre(2));
  EXPECT_THAT(Read(input_.kept_ids(), 2), ElementsAre(8, 9));
  EXPECT_THAT(Read(input_.kept_rows().positions, 2), ElementsAre(65, 3));
  EXPECT_THAT(Read(input_.kept_rows().sequences, 2), ElementsAre(0, 1));
  EXPECT_THAT(input_.kept_positions(), ElementsAre(65, 3));
  const KvCacheView full = input_.Tables(1);
  EXPECT_THAT(Read(full.first_block, 2), ElementsAre(0, 0));
  EXPECT_THAT(Read(full.blocks, 2), ElementsAre(2, 4));
  EXPECT_THAT(Read(full.blocks + full.max_blocks, 1), ElementsAre(1));
  EXPECT_THAT(Read(input_.Tables(0).first_block, 2), ElementsAre(1, 0));
}

TEST_F(StepInputTest, AddressesMoveOnlyWhenItGrows) {
  Send({2});
  const int version = input_.version();
  const int32_t* ids = input_.ids();
  Send({0, 1, 2});
  EXPECT_EQ(input_.version(), version);
  EXPECT_EQ(input_.ids(), ids);
  full_.resize(17, 3);
  tables_[0][1] = {0, full_};
  Send({2});
  EXPECT_NE(input_.version(), version);
  EXPECT_THAT(Read(input_.Tables(1).blocks, 3), ElementsAre(2, 4, 3));
}

}  // namespace
}  // namespace lapidary::gpu
