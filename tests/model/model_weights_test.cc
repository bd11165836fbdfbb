#include "model/model_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "../checkpoint/checkpoint_files.h"

namespace lapidary {
namespace {

class MiniCheckpoint : public testing::TestWithParam<const char*> {};

TEST_P(MiniCheckpoint, BindsEveryRequiredTensorInPlace) {
  const TensorIndex index = TensorIndex::Open(MiniFolder(GetParam()));
  const ModelPlan plan = MakeModelPlan(LoadConfig(MiniFolder(GetParam())));
  const ModelWeights weights = BindWeights(index, plan);
  const Weight& table = weights.embed_tokens;
  EXPECT_EQ(table.data, index.Find(plan.config.tensor_prefix + "embed_tokens.weight")->bytes.data());
  EXPECT_EQ(table.rows, plan.vocab());
  EXPECT_EQ(table.cols, plan.hidden());
  EXPECT_EQ(table.dtype, DType::kBF16);
  ASSERT_EQ(weights.layers.size(), plan.layers.size());
  for (const LayerPlan& layer : plan.layers) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(layer.index)];
    EXPECT_EQ(bool{w.k_proj}, layer.writes_kv);
    EXPECT_EQ(bool{w.k_norm}, layer.writes_kv);
    EXPECT_EQ(bool{w.v_proj}, layer.writes_kv && !layer.v_is_k);
    EXPECT_EQ(bool{w.experts_gate_up}, layer.has_experts);
    EXPECT_EQ(bool{w.per_layer_input_gate}, plan.per_layer_width() > 0);
    EXPECT_EQ(w.gate_proj.rows, layer.ffn_width);
    // The rule that made these checkpoints draws layer_scalar from [0.8, 1.0).
    EXPECT_GE(w.layer_scalar, 0.8f);
    EXPECT_LE(w.layer_scalar, 1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MiniCheckpoint, testing::Values("e2b-mini", "e4b-mini", "dense-mini", "moe-mini"));

// The e2b-mini folder with other tensors.
class ChangedCheckpoint : public testing::Test {
 protected:
  ChangedCheckpoint() : index_(TensorIndex::Open(MiniFolder("e2b-mini"))) {
    std::filesystem::copy(MiniFolder("e2b-mini") + "/config.json", folder_.File("config.json"));
    plan_ = MakeModelPlan(LoadConfig(folder_.path()));
  }

  static std::string Name(const std::string& rest) { return "model.language_model." + rest; }

  std::vector<StoredTensor> All() const { return index_.tensors(); }
  static StoredTensor& Of(std::vector<StoredTensor>& tensors, const std::string& name) {
    for (StoredTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors.front();
  }
  void Write(const std::vector<StoredTensor>& tensors) const {
    folder_.Write("model.safetensors", SafetensorsFile(tensors));
  }
  void ExpectBindError(ErrorKind kind, const std::vector<std::string>& parts) const {
    const TensorIndex changed = TensorIndex::Open(folder_.path());
    ExpectError(kind, parts, [&] { BindWeights(changed, plan_); });
  }

  TempFolder folder_;
  TensorIndex index_;
  ModelPlan plan_;
};

bool SameBytes(const Weight& a, const Weight& b) {
  return a.dtype == b.dtype && a.size_bytes() == b.size_bytes() &&
         (a.data == nullptr || std::memcmp(a.data, b.data, static_cast<size_t>(a.size_bytes())) == 0);
}

// Field report 25: fine-tuned and quantisation-aware files leave the unused tensors out.
TEST_F(ChangedCheckpoint, UnusedKvTensorsOfSharingLayersMayBeAbsent) {
  size_t dropped = 0;
  Write(Select(index_, [&](const std::string& name) {
    for (const char* layer : {"6", "7", "8", "9"}) {
      for (const char* tensor : {"k_proj.weight", "v_proj.weight", "k_norm.weight"}) {
        if (name != Name(std::string("layers.") + layer + ".self_attn." + tensor)) continue;
        ++dropped;
        return false;
      }
    }
    return true;
  }));
  ASSERT_EQ(dropped, 12u);
  const TensorIndex changed = TensorIndex::Open(folder_.path());
  const ModelWeights with = BindWeights(index_, plan_), without = BindWeights(changed, plan_);
  for (size_t i = 0; i < with.layers.size(); ++i) {
    EXPECT_TRUE(SameBytes(with.layers[i].q_proj, without.layers[i].q_proj)) << i;
    EXPECT_TRUE(SameBytes(with.layers[i].k_proj, without.layers[i].k_proj)) << i;
    EXPECT_TRUE(SameBytes(with.layers[i].down_proj, without.layers[i].down_proj)) << i;
    EXPECT_EQ(with.layers[i].layer_scalar, without.layers[i].layer_scalar) << i;
  }
}

// Layer 5 is the last sliding layer that writes K/V here, as layer 13 is in E2B.
TEST_F(ChangedCheckpoint, AMissingTensorThatIsNeededIsNamed) {
  const std::string missing = Name("layers.5.self_attn.k_proj.weight");
  Write(Select(index_, [&](const std::string& name) { return name != missing; }));
  ExpectBindError(ErrorKind::kNotFound, {missing, "[32,96]"});
  const std::vector<WeightSpec> required = RequiredWeights(plan_);
  for (size_t i = 0; i < required.size(); i += 9) {
    Write(Select(index_, [&](const std::string& name) { return name != required[i].name; }));
    ExpectBindError(ErrorKind::kNotFound, {"\"" + required[i].name + "\""});
  }
}

TEST_F(ChangedCheckpoint, TwoShardsAndAnIndexGiveTheSameWeights) {
  const std::vector<StoredTensor> all = All();
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  Json map = Json::object();
  for (auto tensor = all.begin(); tensor != all.end(); ++tensor) map[tensor->name] = tensor < middle ? "a.st" : "b.st";
  folder_.Write("a.st", SafetensorsFile({all.begin(), middle}));
  folder_.Write("b.st", SafetensorsFile({middle, all.end()}));
  folder_.Write("model.safetensors.index.json", Json({{"weight_map", map}}).dump());
  const TensorIndex sharded = TensorIndex::Open(folder_.path());
  const ModelWeights one = BindWeights(index_, plan_), two = BindWeights(sharded, plan_);
  EXPECT_TRUE(SameBytes(one.embed_tokens, two.embed_tokens));
  EXPECT_TRUE(SameBytes(one.norm, two.norm));
  for (size_t i = 0; i < one.layers.size(); ++i)
    EXPECT_TRUE(SameBytes(one.layers[i].o_proj, two.layers[i].o_proj)) << i;
  std::filesystem::remove(folder_.File("b.st"));
  ExpectError(ErrorKind::kNotFound, {"b.st"}, [&] { TensorIndex::Open(folder_.path()); });
}

TEST_F(ChangedCheckpoint, WrongShapesAreNamedWithBothShapes) {
  std::vector<StoredTensor> tensors = All();
  Of(tensors, Name("layers.2.mlp.up_proj.weight")).shape = {96, 160};
  Write(tensors);
  ExpectBindError(ErrorKind::kCorruptFile, {"layers.2.mlp.up_proj.weight", "[96,160]", "[160,96]"});
  tensors = All();
  Of(tensors, Name("norm.weight")).shape = {96, 1};
  Write(tensors);
  ExpectBindError(ErrorKind::kCorruptFile, {"norm.weight", "[96,1]", "[96]"});
}

TEST_F(ChangedCheckpoint, AVocabularyOfAnotherSizeThanTheTableIsAnError) {
  plan_.config.vocab_size = 1000;
  Write(All());
  ExpectBindError(ErrorKind::kCorruptFile, {"embed_tokens.weight", "[1024,96]", "[1000,96]"});
}

TEST_F(ChangedCheckpoint, PerLayerInputsThatTheConfigLeavesOutAreAnError) {
  plan_.config.hidden_size_per_layer_input = 0;
  Write(All());
  ExpectBindError(ErrorKind::kCorruptFile,
                  {"model.safetensors: tensor \"" + Name("embed_tokens_per_layer.weight") + "\"",
                   "found hidden_size_per_layer_input 0", "wanted more than 0"});
}

TEST_F(ChangedCheckpoint, MoreLayersThanTheConfigHasAreAnError) {
  Config config = plan_.config;
  config.num_hidden_layers = 8;
  config.num_kv_shared_layers = 2;
  config.layer_types.resize(8);
  config.layer_types.back() = AttentionType::kFull;
  plan_ = MakeModelPlan(config);
  Write(All());
  ExpectBindError(ErrorKind::kCorruptFile, {"tensor \"" + Name("layers.9."), "found num_hidden_layers 8", "wanted 10"});
}

TEST_F(ChangedCheckpoint, TensorsThatOnlyLookLikeLayersAreIgnored) {
  std::vector<StoredTensor> tensors = All();
  for (const char* name : {"layers.x.weight", "layers.99999999999999999999.weight", "layers.77", "layers.-5.weight"}) {
    tensors.push_back({Name(name), "BF16", {1}, Of(tensors, Name("layers.0.layer_scalar")).bytes});
  }
  tensors.push_back({"model.audio_tower.layers.50.weight", "BF16", {1}, tensors.back().bytes});
  Write(tensors);
  const TensorIndex changed = TensorIndex::Open(folder_.path());
  EXPECT_EQ(BindWeights(changed, plan_).layers.size(), 10u);
}

TEST(ModelWeightsTest, ExpertsThatTheConfigLeavesOutAreAnError) {
  const TensorIndex index = TensorIndex::Open(MiniFolder("moe-mini"));
  Config config = LoadConfig(MiniFolder("moe-mini"));
  config.enable_moe_block = false;
  ExpectError(ErrorKind::kCorruptFile,
              {"tensor \"" + config.tensor_prefix + "layers.0.router.proj.weight\"", "found enable_moe_block false",
               "wanted true"},
              [&] { BindWeights(index, MakeModelPlan(config)); });
}

TEST_F(ChangedCheckpoint, OtherTypesAreRefusedWhereTheyAreReadOnly) {
  std::vector<StoredTensor> tensors = All();
  Of(tensors, Name("layers.0.mlp.gate_proj.weight")).stored_type = "I16";
  Write(tensors);
  ExpectBindError(ErrorKind::kUnsupported, {"layers.0.mlp.gate_proj.weight", "I16", "BF16"});
  tensors = All();
  Of(tensors, "model.audio_tower.output_proj.bias").stored_type = "U16";
  Of(tensors, Name("layers.9.self_attn.k_proj.weight")).stored_type = "I16";  // a sharing layer's
  Write(tensors);
  const TensorIndex changed = TensorIndex::Open(folder_.path());
  EXPECT_EQ(BindWeights(changed, plan_).layers.size(), 10u);
}

TEST_F(ChangedCheckpoint, LayerScalarIsReadInEveryType) {
  const float f32 = 0.8125f;
  const uint16_t f16 = 0x3A80, bf16 = 0x3F50;  // the same number
  for (const auto& [type, bytes] :
       {std::pair("F32", std::as_bytes(std::span(&f32, 1))), std::pair("F16", std::as_bytes(std::span(&f16, 1))),
        std::pair("BF16", std::as_bytes(std::span(&bf16, 1)))}) {
    std::vector<StoredTensor> tensors = {};
    StoredTensor scalar{Name("layers.3.layer_scalar"), type, {1}, bytes};
    tensors.push_back(scalar);  // first, where a float32 is aligned
    for (const StoredTensor& tensor : All()) {
      if (tensor.name != scalar.name) tensors.push_back(tensor);
    }
    Write(tensors);
    const TensorIndex changed = TensorIndex::Open(folder_.path());
    EXPECT_EQ(BindWeights(changed, plan_).layers[3].layer_scalar, 0.8125f) << type;
  }
}

TEST_F(ChangedCheckpoint, HalfPrecisionScalarsOfEveryKind) {
  for (const auto& [bits, value] : {std::pair<uint16_t, float>{0x0000, 0.0f},
                                    {0x8001, -0x1p-24f},
                                    {0x03FF, 1023 * 0x1p-24f},
                                    {0x0400, 0x1p-14f},
                                    {0xC000, -2.0f},
                                    {0x7BFF, 65504.0f},
                                    {0x7C00, INFINITY}}) {
    std::vector<StoredTensor> tensors = All();
    StoredTensor& scalar = Of(tensors, Name("layers.0.layer_scalar"));
    scalar.stored_type = "F16";
    scalar.bytes = std::as_bytes(std::span(&bits, 1));
    Write(tensors);
    const TensorIndex changed = TensorIndex::Open(folder_.path());
    EXPECT_EQ(BindWeights(changed, plan_).layers[0].layer_scalar, value) << bits;
  }
}

TEST_F(ChangedCheckpoint, TensorsOffTheirAlignmentCannotBeReadInPlace) {
  std::vector<StoredTensor> tensors = All();
  const uint8_t byte = 1;
  tensors.insert(tensors.begin(), {"extra", "U8", {1}, std::as_bytes(std::span(&byte, 1))});
  Write(tensors);
  ExpectBindError(ErrorKind::kUnsupported, {"embed_tokens.weight", "multiple of 2", "in place"});
}

TEST_F(ChangedCheckpoint, SummaryTellsWhatIsRead) {
  const WeightUse use = SummarizeUse(index_, plan_);
  EXPECT_EQ(use.read_tensors, RequiredWeights(plan_).size());
  EXPECT_EQ(use.ignored_tensors, 3u + 12u);  // towers, and k_proj, v_proj, k_norm of the four sharing layers
  EXPECT_EQ(use.read_tensors + use.ignored_tensors, index_.tensors().size());
  EXPECT_EQ(use.is_read.size(), index_.tensors().size());
  EXPECT_EQ(use.table_bytes, 1024 * 10 * 16 * 2);
  EXPECT_EQ(use.per_token_bytes, use.read_bytes - use.table_bytes);
  int64_t all = 0;
  for (const StoredTensor& tensor : index_.tensors()) all += static_cast<int64_t>(tensor.bytes.size());
  EXPECT_EQ(use.read_bytes + use.ignored_bytes, all);
}

TEST(WeightUseTest, OnlyTheChosenExpertsCountForAToken) {
  const TensorIndex index = TensorIndex::Open(MiniFolder("moe-mini"));
  const WeightUse use = SummarizeUse(index, MakeModelPlan(LoadConfig(MiniFolder("moe-mini"))));
  EXPECT_EQ(use.ignored_tensors, 0u);
  // 6 layers, 2 of 8 experts of 3 x 48 x 96 bfloat16 each.
  EXPECT_EQ(use.read_bytes - use.per_token_bytes, 6 * 6 * 3 * 48 * 96 * 2);
}

}  // namespace
}  // namespace lapidary
