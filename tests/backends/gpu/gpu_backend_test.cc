#include "backends/gpu/gpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <memory>
#include <optional>
#include <vector>

#include "testing/model_runner.h"
#include "testing/test_backend.h"

namespace lapidary {
namespace {

class GpuBackendTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoTestBackend(); !why.empty()) GTEST_SKIP() << why;
  }

  // A backend in which each of `prompts` has been read.
  struct Read {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<ModelRunner> runner;
  };
  Read ReadPrompts(const std::vector<std::vector<int32_t>>& prompts, const GpuBackendOptions& options = {},
                   DType kv_type = DType::kF32) {
    Read read{LoadGpuBackend(TestData(GetParam()), options, {}), nullptr};
    read.runner = std::make_unique<ModelRunner>(*read.backend, kv_type, static_cast<int>(prompts.size()), 256);
    for (size_t s = 0; s < prompts.size(); ++s) read.runner->Prefill(static_cast<int>(s), prompts[s]);
    return read;
  }
};

// Steps of up to 8 rows: a row has the same bits alone, among others, and in a draft that is verified in one step.
TEST_P(GpuBackendTest, FewRowsDoNotDependOnEachOther) {
  const std::vector<std::vector<int32_t>> prompts = {Ids(5, 1), Ids(70, 2), Ids(33, 3)};
  const std::vector<int32_t> next = Ids(3, 4);
  Read read = ReadPrompts(prompts);
  const auto end = [&](size_t s) { return static_cast<int64_t>(prompts[s].size()); };
  std::vector<std::vector<float>> alone;
  for (int s = 0; s < 3; ++s) {
    const auto at = static_cast<size_t>(s);
    alone.push_back(read.runner->Step({{s, end(at), {next[at]}}}, {0}));
  }
  const std::vector<float> together =
      read.runner->Step({{0, end(0), {next[0]}}, {1, end(1), {next[1]}}, {2, end(2), {next[2]}}}, {0, 1, 2});
  const auto vocab = static_cast<size_t>(read.runner->vocab());
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_TRUE(std::equal(alone[s].begin(), alone[s].end(), together.begin() + static_cast<ptrdiff_t>(s * vocab)))
        << s;
  }

  std::vector<std::vector<float>> one_by_one;
  const std::vector<int32_t> draft = Ids(8, 5);
  for (size_t i = 0; i < draft.size(); ++i) {
    one_by_one.push_back(read.runner->Step({{1, end(1) + static_cast<int64_t>(i), {draft[i]}}}, {0}));
  }
  const std::vector<float> verified = read.runner->Step({{1, end(1), draft}}, {0, 1, 2, 3, 4, 5, 6, 7});
  for (size_t i = 0; i < draft.size(); ++i) {
    EXPECT_TRUE(
        std::equal(one_by_one[i].begin(), one_by_one[i].end(), verified.begin() + static_cast<ptrdiff_t>(i * vocab)))
        << i;
  }
}

TEST_P(GpuBackendTest, GreedyIdsAreThoseOfTheLogits) {
  const std::vector<int32_t> prompt = Ids(40, 6);
  const std::unique_ptr<Backend> backend = LoadGpuBackend(TestData(GetParam()), {}, {});
  ModelRunner runner(*backend, DType::kF32, 1, 256);
  runner.Prefill(0, prompt);
  for (const size_t rows : {size_t{1}, size_t{7}, size_t{20}}) {
    const std::vector<int32_t> ids = Ids(rows, 7);
    std::vector<int32_t> wanted(rows);
    for (size_t i = 0; i < rows; ++i) wanted[i] = static_cast<int32_t>(i);
    const std::vector<float> logits = runner.Step({{0, 40, ids}}, wanted);
    const std::vector<int32_t> best = runner.StepGreedy({{0, 40, ids}}, wanted);
    const auto vocab = static_cast<size_t>(runner.vocab());
    for (size_t i = 0; i < rows; ++i) EXPECT_EQ(best[i], Argmax(std::span(logits).subspan(i * vocab, vocab))) << i;
  }
}

// Steps of many sequences that decode are recorded: they give what the steps give that also give logits, whatever sizes
// came before, and rows that are there only to round their number up write nothing.
TEST_P(GpuBackendTest, BatchesChooseAsTheirLogitsSay) {
  constexpr int kSequences = 17;
  std::vector<std::vector<int32_t>> prompts;
  for (uint32_t s = 0; s < kSequences; ++s) prompts.push_back(Ids(1 + s % 7, s));
  Read read = ReadPrompts(prompts);
  const auto vocab = static_cast<size_t>(read.runner->vocab());
  const auto step_of = [&](int first, int count) {
    std::vector<ModelRunner::Part> parts;
    for (int s = first; s < first + count; ++s) {
      const auto at = static_cast<size_t>(s);
      parts.push_back({s, static_cast<int64_t>(prompts[at].size()), {prompts[at].back()}});
    }
    return parts;
  };
  for (const int rows : {3, 9, 17, 3}) {
    // Not from the first sequence on: rows that are not there would have that one's positions.
    const std::vector<ModelRunner::Part> parts = step_of(kSequences - rows, rows);
    std::vector<int32_t> wanted(static_cast<size_t>(rows));
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<int32_t>(i);
    const std::vector<float> before = read.runner->Step(step_of(kSequences - rows, 1), {0});
    const std::vector<int32_t> best = read.runner->StepGreedy(parts, wanted);
    EXPECT_EQ(read.runner->Step(step_of(kSequences - rows, 1), {0}), before) << rows;
    const std::vector<float> logits = read.runner->Step(parts, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(best[i], Argmax(std::span(logits).subspan(i * vocab, vocab))) << rows << " rows, row " << i;
    }
  }
}

// Few rows, many that decode, and steps with prompts, of which not all rows are chosen from.
TEST_P(GpuBackendTest, ChoosesAsTheSamplerDoes) {
  std::vector<std::vector<int32_t>> prompts;
  for (uint32_t s = 0; s < 9; ++s) prompts.push_back(Ids(2 + s % 3, s));
  Read read = ReadPrompts(prompts);
  const int64_t vocab = read.runner->vocab();
  const auto check = [&](const std::vector<ModelRunner::Part>& parts, const std::vector<int32_t>& wanted) {
    std::vector<SamplingParams> params(wanted.size());
    std::vector<Sampler> samplers;
    std::vector<std::vector<TouchedId>> touched(wanted.size());
    std::vector<RowSampling> rows;
    for (size_t i = 0; i < wanted.size(); ++i) {
      SamplingParams& p = params[i];
      p.temperature = i % 3 == 0 ? 0.0 : 1.5;
      p.top_k = i % 2 == 0 ? 0 : 20;
      p.top_p = i % 4 < 2 ? 1.0 : 0.9;
      p.min_p = i % 5 == 4 ? 0.01 : 0.0;
      p.seed = i;
      if (i % 3 == 1) p.repetition_penalty = 1.5;
      if (i % 3 == 2) p.logit_bias = {{5, 3.0}};
      samplers.emplace_back(p, Ids(20, 3), vocab);
      for (const int32_t id : Ids(i, 11)) samplers.back().Accept(id);
      samplers.back().AppendTouched(touched[i]);
      rows.push_back({&p, static_cast<uint64_t>(samplers.back().accepted()), touched[i]});
    }
    std::vector<float> logits = read.runner->Step(parts, wanted);
    const std::vector<int32_t> chosen = read.runner->StepSampled(parts, wanted, rows);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto width = static_cast<size_t>(vocab);
      EXPECT_EQ(chosen[i], samplers[i].Choose(std::span(logits).subspan(i * width, width))) << i;
    }
  };
  const auto part = [&](int s, std::vector<int32_t> ids) {
    return ModelRunner::Part{s, static_cast<int64_t>(prompts[static_cast<size_t>(s)].size()), std::move(ids)};
  };
  check({part(0, {7}), part(2, {8, 9}), part(3, {10})}, {0, 2, 3});
  std::vector<ModelRunner::Part> all;
  for (int s = 0; s < 9; ++s) all.push_back(part(s, {7 + s}));
  check(all, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  check({part(0, {7}), part(1, Ids(12, 5)), part(4, {9})}, {0, 12, 13});
}

TEST_P(GpuBackendTest, TimesEachKernelOfAStep) {
  const std::vector<std::vector<int32_t>> prompts(9, Ids(4, 1));
  Read read = ReadPrompts(prompts);
  for (const int rows : {1, 9}) {
    std::vector<ModelRunner::Part> parts;
    std::vector<int32_t> wanted;
    for (int s = 0; s < rows; ++s) {
      parts.push_back({s, 4, {7}});
      wanted.push_back(s);
    }
    const std::vector<KernelTime> kernels = read.runner->TimeKernels(parts, wanted);
    ASSERT_FALSE(kernels.empty());
    int64_t launches = 0;
    for (const KernelTime& kernel : kernels) {
      EXPECT_GT(kernel.launches, 0) << kernel.name;
      EXPECT_GE(kernel.seconds, 0) << kernel.name;
      launches += kernel.launches;
    }
    EXPECT_GT(launches, rows > 8 ? read.backend->plan().config.num_hidden_layers : 0);
    // The one launch of few rows tells its stages.
    const bool one_launch = std::ranges::find(kernels, "decode_step", &KernelTime::name) != kernels.end();
    const bool stages = std::ranges::find(kernels, "attention: segments", &KernelTime::name) != kernels.end();
    EXPECT_EQ(one_launch, stages);
  }
  const std::optional<DeviceMemoryUse> use = read.backend->MemoryUse();
  ASSERT_TRUE(use.has_value());
  EXPECT_GT(use->weights, 0);
  EXPECT_GT(use->kv, 0);
  EXPECT_GE(use->used, use->weights + use->kv);
}

// The table of per-layer embeddings gives the same bits from either side.
TEST_P(GpuBackendTest, TableOnTheHostGivesTheSameBits) {
  const std::vector<int32_t> prompt = Ids(50, 8);
  std::vector<std::vector<float>> logits;
  for (const PerLayerTable where : {PerLayerTable::kDevice, PerLayerTable::kHost}) {
    Read read = ReadPrompts({prompt}, {.per_layer_table = where});
    logits.push_back(read.runner->Step({{0, 50, {9}}}, {0}));
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST_P(GpuBackendTest, StoppingEarlyIsHarmless) {
  const std::vector<int32_t> prompt = Ids(90, 9);
  std::vector<std::vector<float>> logits;
  for (const bool early : {true, false}) {
    const std::unique_ptr<Backend> backend = LoadGpuBackend(TestData(GetParam()), {}, {});
    ModelRunner runner(*backend, DType::kF32, 1, 256);
    logits.push_back(runner.Prefill(0, prompt, {.stop_early = early}));
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    error += (logits[0][i] - logits[1][i]) * (logits[0][i] - logits[1][i]);
    norm += logits[1][i] * logits[1][i];
  }
  EXPECT_LE(std::sqrt(error / norm), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(, GpuBackendTest, testing::Values("e2b-mini", "e4b-mini", "dense-mini", "moe-mini"),
                         [](const auto& shape) { return shape.param.substr(0, shape.param.find('-')); });

}  // namespace
}  // namespace lapidary
