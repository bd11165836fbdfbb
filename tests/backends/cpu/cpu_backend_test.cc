#include "backends/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/tensor_index.h"
#include "model/model_weights.h"
#include "testing/model_runner.h"

namespace lapidary {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What() of the Error that `f` throws, "" when it throws none.
template <typename F>
std::string ErrorOf(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A copy of a tiny checkpoint with a NaN in one tensor.
void WriteWithNaN(const TempFolder& folder, const std::string& shape, const std::string& tensor) {
  std::filesystem::copy(TestData(shape), folder.path(), std::filesystem::copy_options::recursive);
  const std::string file = folder.File("model.safetensors");
  const MappedFile mapped = MappedFile::Open(file);
  size_t offset = 0;
  for (const StoredTensor& t : ParseSafetensors(mapped.bytes(), file)) {
    if (t.name == tensor) offset = static_cast<size_t>(t.bytes.data() - mapped.bytes().data());
  }
  ASSERT_GT(offset, 0u) << tensor;
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(offset));
  const uint16_t nan = 0x7fc0;
  out.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
}

TEST(CpuBackendTest, SaysWhatItRunsOn) {
  const auto backend = LoadCpuBackend(TestData("e2b-mini"), {3}, {});
  EXPECT_THAT(backend->Description(), AllOf(HasSubstr("cpu ("), HasSubstr("3 threads")));
}

TEST(CpuBackendTest, ReportsProgressUpToTheTotal) {
  uint64_t last = 0, all = 0;
  LoadCpuBackend(TestData("e4b-mini"), {1}, [&](std::string_view, uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done, all = total;
  });
  EXPECT_GT(all, 0u);
  EXPECT_EQ(last, all);
}

// Norms and scalars.
int64_t VectorBytes(const ModelPlan& plan) {
  int64_t bytes = 0;
  for (const WeightSpec& spec : RequiredWeights(plan)) {
    if (spec.shape.size() == 1) bytes += 2 * spec.shape[0];
  }
  return bytes;
}

// Everything but the per-layer table: 2 bytes each, experts as top_k of them.
TEST(CpuBackendTest, CountsTheBytesOfAStep) {
  const auto backend = LoadCpuBackend(TestData("moe-mini"), {1}, {});
  const Config& c = backend->plan().config;
  int64_t weights = c.vocab_size * c.hidden_size;
  for (const LayerPlan& layer : backend->plan().layers) {
    const int64_t q = int64_t{layer.heads} * layer.head_dim, kv = int64_t{layer.kv_heads} * layer.head_dim;
    weights += c.hidden_size * (2 * q + kv * (layer.v_is_k ? 1 : 2) + 3 * layer.ffn_width + c.num_experts);
    weights += c.top_k_experts * 3 * c.hidden_size * c.moe_intermediate_size;
  }
  EXPECT_EQ(backend->WeightBytesPerStep(), 2 * weights + VectorBytes(backend->plan()));
}

TEST(CpuBackendTest, CountsTheOperationsOfAStep) {
  const auto backend = LoadCpuBackend(TestData("dense-mini"), {1}, {});
  ModelRunner runner(*backend, DType::kF32, 1, 64);
  runner.Prefill(0, std::vector<int32_t>{2});
  // One token, one visible position: two operations a weight, and attention over that one position.
  double attention = 0;
  for (const LayerPlan& layer : backend->plan().layers) attention += 4.0 * layer.heads * layer.head_dim;
  const int64_t matrices = backend->WeightBytesPerStep() - VectorBytes(backend->plan());
  EXPECT_EQ(backend->LastStepFlops(), static_cast<double>(matrices) + attention);
}

TEST(CpuBackendTest, StoppingEarlySavesTheLayersThatWriteNoKv) {
  const auto backend = LoadCpuBackend(TestData("e2b-mini"), {1}, {});
  ModelRunner runner(*backend, DType::kF32, 1, 64);
  const std::vector<int32_t> ids(40, 7);
  runner.Prefill(0, ids, {.stop_early = true});
  const double early = backend->LastStepFlops();
  runner.Prefill(0, ids, {.stop_early = false});
  EXPECT_LT(early, 0.6 * backend->LastStepFlops());
}

TEST(CpuBackendTest, ANaNInTheWeightsNamesItsLayer) {
  const struct {
    std::string tensor, where;
  } cases[] = {{"model.language_model.layers.3.mlp.down_proj.weight", "layer 3"},
               {"model.language_model.layers.0.input_layernorm.weight", "layer 0"},
               {"model.language_model.layers.9.per_layer_projection.weight", "layer 9"},
               {"model.language_model.layers.2.self_attn.v_proj.weight", "layer 2"},
               {"model.language_model.norm.weight", "logits"}};
  for (const auto& [tensor, where] : cases) {
    const TempFolder folder;
    WriteWithNaN(folder, "e2b-mini", tensor);
    const auto backend = LoadCpuBackend(folder.path(), {2}, {});
    ModelRunner runner(*backend, DType::kF32, 1, 64);
    EXPECT_THAT(ErrorOf([&] {
                  runner.Prefill(0, std::vector<int32_t>{2, 10, 11});
                }),
                AllOf(HasSubstr(where), HasSubstr("not finite")))
        << tensor;
  }
}

TEST(CpuBackendTest, ANaNInOneEmbeddingHarmsOnlyItsToken) {
  const TempFolder folder;
  WriteWithNaN(folder, "e2b-mini", "model.language_model.embed_tokens_per_layer.weight");  // token 0
  const auto backend = LoadCpuBackend(folder.path(), {1}, {});
  ModelRunner runner(*backend, DType::kF32, 2, 64);
  EXPECT_THAT(ErrorOf([&] { runner.Prefill(0, std::vector<int32_t>{2, 0, 11}); }), HasSubstr("layer 0"));
  EXPECT_EQ(ErrorOf([&] { runner.Prefill(1, std::vector<int32_t>{2, 10, 11}); }), "");
}

TEST(CpuBackendTest, RefusesBatchesThatDoNotFit) {
  const auto backend = LoadCpuBackend(TestData("e2b-mini"), {1}, {});
  ModelRunner runner(*backend, DType::kF32, 1, 64);
  EXPECT_THAT(ErrorOf([&] { runner.Step({{0, 0, {1024}}}, {0}); }), AllOf(HasSubstr("1024"), HasSubstr("0 to 1023")));
  EXPECT_THAT(ErrorOf([&] { runner.Step({{0, 0, {-1}}}, {0}); }), HasSubstr("-1"));
  EXPECT_THAT(ErrorOf([&] { runner.Step({{0, 0, {5}}}, {1}); }), HasSubstr("logit rows"));
  EXPECT_THAT(ErrorOf([&] { runner.Step({}, {}); }), HasSubstr("no rows"));
  const std::vector<int32_t> ids = {5}, positions = {0}, sequences = {0};
  const std::vector<std::array<BlockTableView, kKvGroups>> empty(1);
  std::vector<float> logits(1024);
  EXPECT_THAT(ErrorOf([&] {
                backend->Forward({ids, positions, sequences, empty, {}, true}, logits, nullptr);
              }),
              HasSubstr("block table"));
}

TEST(CpuBackendTest, RefusesACacheTypeItCannotStore) {
  const auto backend = LoadCpuBackend(TestData("e2b-mini"), {1}, {});
  EXPECT_THAT(ErrorOf([&] { backend->AllocateKv({1, 1}, DType::kF16); }), AllOf(HasSubstr("F16"), HasSubstr("BF16")));
}

}  // namespace
}  // namespace lapidary
