// The tiny checkpoints against transformers 5.17 in float32: logits, hidden states, greedy ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/tensor_index.h"
#include "testing/model_runner.h"

namespace lapidary {
namespace {

// Tolerances of the reference itself: how far float32 in another order of summation may lie.
constexpr float kLogitTolerance = 2e-3f;
constexpr double kHiddenTolerance = 1e-4;  // relative, by norm
constexpr double kMargin = 2e-3;           // greedy ids bind up to the first margin below this

class Golden {
 public:
  explicit Golden(const std::string& name)
      : file_(MappedFile::Open(TestData(name) + "/golden.safetensors")),
        meta_(ParseJson(ReadFile(TestData(name) + "/golden.json"), "golden.json")) {
    for (const StoredTensor& t : ParseSafetensors(file_.bytes(), file_.path())) tensors_.emplace(t.name, t);
  }
  std::vector<float> Tensor(const std::string& name) const {
    const StoredTensor& t = tensors_.at(name);
    std::vector<float> out(static_cast<size_t>(t.elements()));
    std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
    return out;
  }
  bool Has(const std::string& name) const { return tensors_.count(name) > 0; }
  const Json& Prompts() const { return meta_["prompts"]; }

 private:
  MappedFile file_;
  Json meta_;
  std::map<std::string, StoredTensor> tensors_;
};

class MiniGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { backend_ = LoadCpuBackend(TestData(GetParam()), {2}, {}); }
  Golden golden_{GetParam()};
  std::unique_ptr<Backend> backend_;
};

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN counts as the largest
  }
  return largest;
}

TEST_P(MiniGoldenTest, LogitsOfEveryPosition) {
  ModelRunner runner(*backend_, DType::kF32, 1, 512);
  for (const auto& [name, prompt] : golden_.Prompts().items()) {
    const std::vector<float> logits =
        runner.Prefill(0, prompt["ids"].get<std::vector<int32_t>>(), {.all_logits = true});
    EXPECT_LE(LargestDifference(logits, golden_.Tensor(name + ".logits")), kLogitTolerance) << name;
  }
}

// Collects taps under the names of the reference.
class Collector : public TapSink {
 public:
  explicit Collector(int layers) : layers_(layers) {}
  void OnTap(Tap tap, int layer, std::span<const float> data, int64_t, int64_t) override {
    const auto keep = [&](const std::string& name) { taps[name].assign(data.begin(), data.end()); };
    if (tap == Tap::kEmbedding) keep("hidden.0");
    if (tap == Tap::kLayer && layer + 1 < layers_) keep("hidden." + std::to_string(layer + 1));
    if (tap == Tap::kFinalNorm) keep("hidden." + std::to_string(layers_));
    if (tap == Tap::kPerLayerInputs) keep("per_layer_inputs");
  }
  std::map<std::string, std::vector<float>> taps;

 private:
  int layers_;
};

TEST_P(MiniGoldenTest, HiddenStates) {
  ModelRunner runner(*backend_, DType::kF32, 1, 512);
  const int layers = backend_->plan().config.num_hidden_layers;
  Collector collector(layers);
  const auto ids = golden_.Prompts()["short"]["ids"].get<std::vector<int32_t>>();
  runner.Prefill(0, ids, {.stop_early = false, .all_logits = true}, &collector);
  EXPECT_EQ(collector.taps.size(), static_cast<size_t>(layers) + 1 + (golden_.Has("short.per_layer_inputs") ? 1 : 0));
  for (const auto& [name, found] : collector.taps) {
    const std::vector<float> wanted = golden_.Tensor("short." + name);
    ASSERT_EQ(found.size(), wanted.size()) << name;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      difference += std::pow(double{found[i]} - wanted[i], 2);
      norm += std::pow(double{wanted[i]}, 2);
    }
    EXPECT_LE(std::sqrt(difference / norm), kHiddenTolerance) << name;
  }
}

TEST_P(MiniGoldenTest, GreedyIds) {
  ModelRunner runner(*backend_, DType::kF32, 1, 512);
  for (const auto& [name, prompt] : golden_.Prompts().items()) {
    const auto ids = prompt["ids"].get<std::vector<int32_t>>();
    const auto wanted = prompt["greedy"].get<std::vector<int32_t>>();
    const auto margins = prompt["margin"].get<std::vector<double>>();
    std::vector<float> logits = runner.Prefill(0, ids);
    size_t checked = 0;
    for (; checked < wanted.size() && margins[checked] >= kMargin; ++checked) {
      ASSERT_EQ(Argmax(logits), wanted[checked]) << name << ", token " << checked;
      const int64_t position = static_cast<int64_t>(ids.size() + checked);
      logits = runner.Step({{0, position, {wanted[checked]}}}, {0});
    }
    EXPECT_GT(checked, 0u) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(, MiniGoldenTest, testing::Values("e2b-mini", "e4b-mini", "dense-mini", "moe-mini"),
                         [](const auto& shape) { return shape.param.substr(0, shape.param.find('-')); });

}  // namespace
}  // namespace lapidary
