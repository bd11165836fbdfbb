#include "model/model_plan.h"

#include <gtest/gtest.h>

#include "../checkpoint/checkpoint_files.h"

namespace lapidary {
namespace {

TEST(ModelPlanTest, E2bShape) {
  const ModelPlan plan = MakeModelPlan(LoadConfig(MiniFolder("e2b-mini")));
  ASSERT_EQ(plan.layers.size(), 10u);
  EXPECT_EQ(plan.last_kv_layer, 5);
  int sliding_slot = 0;
  for (const LayerPlan& layer : plan.layers) {
    SCOPED_TRACE(layer.index);
    const bool full = layer.index % 5 == 4;
    EXPECT_EQ(layer.attention, full ? AttentionType::kFull : AttentionType::kSliding);
    EXPECT_EQ(layer.heads, 4);
    EXPECT_EQ(layer.kv_heads, 1);
    EXPECT_EQ(layer.head_dim, full ? 64 : 32);
    EXPECT_EQ(layer.window, full ? 0 : 16);
    EXPECT_EQ(layer.rotary_pairs, full ? 8 : 16);
    EXPECT_EQ(layer.rope_theta, full ? 1e6 : 1e4);
    EXPECT_FALSE(layer.v_is_k);
    EXPECT_FALSE(layer.has_experts);
    EXPECT_EQ(layer.writes_kv, layer.index < 6);
    EXPECT_EQ(layer.ffn_width, layer.index < 6 ? 160 : 320);
    if (layer.writes_kv) {
      EXPECT_EQ(layer.kv_source, layer.index);
      EXPECT_EQ(layer.kv_slot, full ? 0 : sliding_slot++);
    } else {
      EXPECT_EQ(layer.kv_source, full ? 4 : 5);
      EXPECT_EQ(layer.kv_slot, full ? 0 : 4);
    }
  }
  const KvGroup& sliding = plan.kv.groups[static_cast<size_t>(AttentionType::kSliding)];
  const KvGroup& full = plan.kv.groups[static_cast<size_t>(AttentionType::kFull)];
  EXPECT_EQ(sliding.layers, 5);
  EXPECT_EQ(sliding.window, 16);
  EXPECT_EQ(sliding.head_dim, 32);
  EXPECT_EQ(full.layers, 1);
  EXPECT_EQ(full.window, 0);
  EXPECT_EQ(full.kv_heads, 1);
  EXPECT_EQ(full.elements_per_block(), 2 * 64 * 64);
}

TEST(ModelPlanTest, KeysAreValuesOnlyOnFullLayers) {
  const ModelPlan plan = MakeModelPlan(LoadConfig(MiniFolder("moe-mini")));
  EXPECT_EQ(plan.last_kv_layer, 5);
  for (const LayerPlan& layer : plan.layers) {
    SCOPED_TRACE(layer.index);
    EXPECT_EQ(layer.v_is_k, layer.index == 5);
    EXPECT_EQ(layer.kv_heads, layer.index == 5 ? 1 : 2);
    EXPECT_TRUE(layer.has_experts);
    EXPECT_TRUE(layer.writes_kv);
    EXPECT_EQ(layer.ffn_width, 160);
  }
}

TEST(ModelPlanTest, RotaryPairsRoundDown) {
  Config config = LoadConfig(MiniFolder("e2b-mini"));
  for (const auto& [head_dim, factor, pairs] :
       {std::tuple(64, 0.25, 8), std::tuple(48, 0.25, 6), std::tuple(50, 0.25, 6), std::tuple(64, 1.0, 32),
        std::tuple(64, 0.0, 0), std::tuple(512, 0.3, 76)}) {
    config.global_head_dim = head_dim;
    config.rope_full.partial_rotary_factor = factor;
    EXPECT_EQ(MakeModelPlan(config).layers[4].rotary_pairs, pairs) << head_dim << " " << factor;
  }
}

TEST(ModelPlanTest, SharingWithoutASourceIsRefused) {
  Config config = LoadConfig(MiniFolder("e2b-mini"));
  config.num_kv_shared_layers = 6;  // layer 4, the first full one, would share
  ExpectError(ErrorKind::kUnsupported, {"layer 4", "num_kv_shared_layers"}, [&] { MakeModelPlan(config); });
}

}  // namespace
}  // namespace lapidary
