// The bits of a row's logits must not depend on how the prompt was cut, on the number of threads, on other rows of the
// step, or on whether other rows stopped early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "testing/model_runner.h"

namespace lapidary {
namespace {

using Ids = std::vector<int32_t>;

Ids MakePrompt(int64_t vocab, size_t length, uint64_t seed) {
  Ids ids = {2};
  while (ids.size() < length) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>(10 + (seed >> 33) % static_cast<uint64_t>(vocab - 10)));
  }
  return ids;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class RowInvarianceTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  std::unique_ptr<Backend> Load(int threads) {
    return LoadCpuBackend(TestData(std::get<0>(GetParam())), {threads}, {});
  }
  DType kv_type() const { return std::get<1>(GetParam()); }
};

constexpr size_t kLength = 700;  // beyond every window, several segments

TEST_P(RowInvarianceTest, ChunksOfAPrompt) {
  const auto backend = Load(2);
  ModelRunner runner(*backend, kv_type(), 1, 1024);
  const Ids prompt = MakePrompt(runner.vocab(), kLength, 5);
  const std::vector<float> whole = runner.Prefill(0, prompt);
  for (int64_t chunk : {1, 7, 16, 512})
    EXPECT_TRUE(SameBits(runner.Prefill(0, prompt, {.chunk = chunk}), whole)) << chunk;
}

TEST_P(RowInvarianceTest, EveryPositionOfAPrompt) {
  const auto backend = Load(2);
  ModelRunner runner(*backend, kv_type(), 1, 1024);
  const Ids prompt = MakePrompt(runner.vocab(), 150, 6);
  const std::vector<float> whole = runner.Prefill(0, prompt, {.all_logits = true});
  for (int64_t chunk : {1, 7})
    EXPECT_TRUE(SameBits(runner.Prefill(0, prompt, {.chunk = chunk, .all_logits = true}), whole)) << chunk;
}

TEST_P(RowInvarianceTest, Threads) {
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    const auto backend = Load(threads);
    ModelRunner runner(*backend, kv_type(), 1, 1024);
    std::vector<float> logits = runner.Prefill(0, MakePrompt(runner.vocab(), kLength, 7));
    const std::vector<float> next = runner.Step({{0, static_cast<int64_t>(kLength), {11}}}, {0});
    logits.insert(logits.end(), next.begin(), next.end());
    if (first.empty()) first = logits;
    EXPECT_TRUE(SameBits(logits, first)) << threads;
  }
}

TEST_P(RowInvarianceTest, StoppingPromptTokensEarly) {
  const auto backend = Load(2);
  ModelRunner runner(*backend, kv_type(), 1, 1024);
  const Ids prompt = MakePrompt(runner.vocab(), 300, 8);
  const std::vector<float> early = runner.Prefill(0, prompt, {.chunk = 77});
  const std::vector<float> after_early = runner.Step({{0, 300, {12}}}, {0});
  EXPECT_TRUE(SameBits(runner.Prefill(0, prompt, {.chunk = 77, .stop_early = false}), early));
  EXPECT_TRUE(SameBits(runner.Step({{0, 300, {12}}}, {0}), after_early));
}

// Decode rows of four sequences of different lengths in one step, and a prompt chunk in between, against each alone.
TEST_P(RowInvarianceTest, AloneAndInABatch) {
  const auto backend = Load(2);
  ModelRunner runner(*backend, kv_type(), 4, 1024);
  const std::vector<Ids> prompts = {MakePrompt(runner.vocab(), 3, 1), MakePrompt(runner.vocab(), 64, 2),
                                    MakePrompt(runner.vocab(), 130, 3), MakePrompt(runner.vocab(), 555, 4)};
  std::vector<std::vector<float>> alone;
  for (int s = 0; s < 4; ++s) {
    const Ids& prompt = prompts[static_cast<size_t>(s)];
    runner.Prefill(s, prompt);
    alone.push_back(runner.Step({{s, static_cast<int64_t>(prompt.size()), {20, 21, 22}}}, {2}));
  }
  for (int s = 0; s < 4; ++s) runner.Prefill(s, prompts[static_cast<size_t>(s)]);
  const auto at = [&](size_t s) { return static_cast<int64_t>(prompts[s].size()); };
  const std::vector<float> together = runner.Step(
      {{0, at(0), {20, 21, 22}}, {1, at(1), {20, 21, 22}}, {2, at(2), {20, 21, 22}}, {3, at(3), {20, 21, 22}}},
      {2, 5, 8, 11});
  const size_t vocab = static_cast<size_t>(runner.vocab());
  for (size_t s = 0; s < 4; ++s) {
    const std::vector<float> row(together.begin() + static_cast<ptrdiff_t>(s * vocab),
                                 together.begin() + static_cast<ptrdiff_t>((s + 1) * vocab));
    EXPECT_TRUE(SameBits(row, alone[s])) << s;
  }
}

// Field report 20: facts from before the window must not be lost or mixed up when a chunk is longer than the window.
TEST_P(RowInvarianceTest, FieldReport20ChunksAroundTheWindow) {
  const auto backend = Load(2);
  ModelRunner runner(*backend, kv_type(), 1, 2048);
  const int64_t window = backend->plan().config.sliding_window;
  for (int64_t length : {window - 1, window, window + 1, 2 * window, int64_t{513}, int64_t{1026}, int64_t{1100}}) {
    const Ids prompt = MakePrompt(runner.vocab(), static_cast<size_t>(length), 9);
    const std::vector<float> one_by_one = runner.Prefill(0, prompt, {.chunk = 1});
    for (int64_t chunk : {int64_t{7}, window, window + 1, int64_t{2048}}) {
      EXPECT_TRUE(SameBits(runner.Prefill(0, prompt, {.chunk = chunk}), one_by_one))
          << length << " in chunks of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, RowInvarianceTest,
                         testing::Combine(testing::Values("e2b-mini", "e4b-mini", "dense-mini", "moe-mini"),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& param) {
                           const std::string& shape = std::get<0>(param.param);
                           return shape.substr(0, shape.find('-')) + "_" +
                                  std::string(NameOf(std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace lapidary
