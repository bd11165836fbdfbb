#include "backends/gpu/decode_pass.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/gpu/gpu_backend.h"
#include "synth/synth.h"
#include "testing/model_runner.h"
#include "testing/test_backend.h"

namespace lapidary {
namespace {

// Widths beside all the round numbers: a residual stream of two phases, products in two and four parts, a head of each
// size, windows and contexts of several segments.
std::string OddShape() {
  nlohmann::json config = nlohmann::json::parse(SynthShape("e2b"));
  nlohmann::json& text = config.contains("text_config") ? config["text_config"] : config;
  text["num_hidden_layers"] = 4;
  text["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  text["num_kv_shared_layers"] = 2;
  text["hidden_size"] = 1576;
  text["intermediate_size"] = 1608;
  text["num_attention_heads"] = 4;
  text["head_dim"] = 256;
  text["global_head_dim"] = 512;
  text["sliding_window"] = 70;
  text["vocab_size"] = text["vocab_size_per_layer_input"] = 1003;
  text["hidden_size_per_layer_input"] = 40;
  return config.dump();
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(error / norm);
}

class DecodePassTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoTestBackend(); !why.empty()) GTEST_SKIP() << why;
    // Of its own, as the tests run at the same time.
    folder_ = std::filesystem::path(testing::TempDir()) / ("lapidary_decode_pass_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    WriteSynthCheckpoint(OddShape(), folder_, 2, {});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

// The one launch gives what the launches of the general pass give, for one row and for several.
TEST_P(DecodePassTest, AgreesWithTheGeneralPass) {
  const std::unique_ptr<Backend> backend = LoadGpuBackend(folder_, {}, {});
  ASSERT_TRUE(gpu::DecodePass::Takes(backend->plan()));
  ModelRunner runner(*backend, GetParam(), 2, 256);
  runner.Prefill(0, Ids(100, 1));
  runner.Prefill(1, Ids(21, 2));
  const std::vector<ModelRunner::Part> one = {{0, 100, {7}}}, several = {{0, 100, {7, 8, 9}}, {1, 21, {5}}};
  // What stands in the cache from the step's own positions is written anew each time.
  const std::vector<float> alone = runner.Step(one, {0}), many = runner.Step(several, {0, 1, 2, 3});
  const std::vector<float> general_alone = runner.Step(one, {0}, /*stop_early=*/false);
  const std::vector<float> general_many = runner.Step(several, {0, 1, 2, 3}, /*stop_early=*/false);
  const double limit = GetParam() == DType::kF32 ? 2e-5 : 2e-3;
  EXPECT_LE(Distance(alone, general_alone), limit);
  EXPECT_LE(Distance(many, general_many), limit);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), many.begin()));
  // Many launches in turn give the same bits.
  for (int i = 0; i < (kIsSlow ? 1 : 500); ++i) ASSERT_EQ(runner.Step(one, {0}), alone) << i;
}

INSTANTIATE_TEST_SUITE_P(Caches, DecodePassTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) { return std::string(test.param == DType::kF32 ? "f32" : "bf16"); });

}  // namespace
}  // namespace lapidary
