#include "cli/bench_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../engine/fake_backend.h"
#include "base/error.h"
#include "cli/direct_runner.h"

namespace lapidary {
namespace {

void NoProgress(std::string_view, uint64_t, uint64_t) {}

TEST(BenchRuns, RunsEveryTestAtItsDepth) {
  for (const int64_t depth : {0, 64, 300}) {
    FakeBackend backend({});
    int64_t decode_rows_at_depth = 0;
    backend.on_step = [&](const StepBatch& batch) {
      if (batch.tables.size() == 4 && batch.positions[0] == depth) {
        EXPECT_THAT(batch.positions, ::testing::Each(depth));
        ++decode_rows_at_depth;
      }
    };
    const BenchPlan plan{
        .prefill = {100, 130}, .decode = {20}, .batch = {1, 4}, .depth = depth, .reps = 3, .step_tokens = 50};
    size_t measured = 0;
    const std::vector<BenchRun> runs = RunBenchPlan(plan, backend, NoProgress, [&] { ++measured; });
    EXPECT_EQ(measured, runs.size() * 3 + 1);
    EXPECT_THAT(backend.faults, ::testing::IsEmpty());
    ASSERT_EQ(runs.size(), 4u);
    EXPECT_EQ(runs[0].steps, 2);
    EXPECT_EQ(runs[1].steps, 3);
    EXPECT_EQ(runs[2].steps, 20);
    EXPECT_EQ(runs[3].steps, 20);
    EXPECT_EQ(runs[3].batch, 4);
    EXPECT_EQ(runs[3].flops, 20);
    EXPECT_GT(runs[3].seconds, 0);
    EXPECT_EQ(decode_rows_at_depth, 4);                  // once to warm up
    for (size_t test = 0; test < runs.size(); ++test) {  // in turns
      ASSERT_EQ(runs[test].reps.size(), 3u);
      for (size_t rep = 0; rep < 3; ++rep) EXPECT_EQ(runs[test].reps[rep].measured, 1 + rep * runs.size() + test);
    }
  }
}

TEST(BenchRuns, MeasuresNothingBeforeTheModelHasWorked) {
  FakeBackend backend({});
  backend.on_step = [](const StepBatch&) { Throw(ErrorKind::kDevice, "layer 3: found a value that is not finite"); };
  const BenchPlan plan{.prefill = {10}, .decode = {}, .batch = {1}};
  int measured = 0;
  EXPECT_THROW(RunBenchPlan(plan, backend, NoProgress, [&] { ++measured; }), Error);
  EXPECT_EQ(measured, 0);
}

TEST(CheckBenchPlan, RefusesMoreThanTheContext) {
  Config config;
  config.max_position_embeddings = 100;
  BenchPlan plan{.prefill = {60}, .decode = {}, .batch = {1}, .depth = 40};
  CheckBenchPlan(plan, config, 0);
  plan.depth = 41;
  EXPECT_THROW(CheckBenchPlan(plan, config, 0), Error);
  plan.depth = 0;
  EXPECT_THROW(CheckBenchPlan(plan, config, 50), Error);
}

}  // namespace
}  // namespace lapidary
