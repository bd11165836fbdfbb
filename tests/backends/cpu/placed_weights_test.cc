#include "backends/cpu/placed_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/tensor_index.h"
#include "model/config.h"
#include "testing/model_runner.h"

namespace lapidary::cpu {
namespace {

TEST(PlacedWeightsTest, MatricesStayInPlaceAndVectorsAreWidened) {
  const ModelPlan plan = MakeModelPlan(LoadConfig(TestData("moe-mini")));
  const TensorIndex index = TensorIndex::Open(TestData("moe-mini"));
  const ModelWeights bound = BindWeights(index, plan);
  const PlacedWeights placed = PlaceWeights(plan, bound);
  EXPECT_EQ(placed.embed_tokens.data, bound.embed_tokens.data);
  ASSERT_EQ(placed.layers.size(), bound.layers.size());
  for (size_t i = 0; i < placed.layers.size(); ++i) {
    const PlacedLayer& layer = placed.layers[i];
    EXPECT_EQ(layer.q_proj.data, bound.layers[i].q_proj.data);
    const auto* norm = static_cast<const BF16*>(bound.layers[i].input_layernorm.data);
    for (size_t c = 0; c < layer.input_layernorm.size(); ++c) EXPECT_EQ(layer.input_layernorm[c], ToFloat(norm[c]));
    ASSERT_EQ(layer.experts_down.size(), static_cast<size_t>(plan.config.num_experts));
    const int64_t bytes = plan.hidden() * plan.config.moe_intermediate_size * 2;
    EXPECT_EQ(static_cast<const std::byte*>(layer.experts_down[3].data) -
                  static_cast<const std::byte*>(layer.experts_down[0].data),
              3 * bytes);
    const auto* scale = static_cast<const BF16*>(bound.layers[i].router_scale.data);
    EXPECT_FLOAT_EQ(layer.router_scale[5], ToFloat(scale[5]) / std::sqrt(static_cast<float>(plan.hidden())));
  }
}

}  // namespace
}  // namespace lapidary::cpu
