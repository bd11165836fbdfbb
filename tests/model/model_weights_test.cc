#include "model/model_weights.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lapidary {
namespace {

std::string Mini(const std::string& name) { return std::string(LAPIDARY_SOURCE_DIR "/tests/data/") + name; }

class MiniCheckpoint : public testing::TestWithParam<const char*> {};

TEST_P(MiniCheckpoint, BindsEveryRequiredTensorInPlace) {
  const TensorIndex index = TensorIndex::Open(Mini(GetParam()));
  const ModelPlan plan = MakeModelPlan(LoadConfig(Mini(GetParam())));
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

}  // namespace
}  // namespace lapidary
