#include "model/model_plan.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace lapidary {
namespace {

LayerPlan AttentionPlan(const Config& config, int index) {
  LayerPlan plan;
  plan.index = index;
  plan.attention = config.layer_types[static_cast<size_t>(index)];
  const bool full = plan.attention == AttentionType::kFull;
  const RopeParameters& rope = full ? config.rope_full : config.rope_sliding;
  plan.heads = config.num_attention_heads;
  plan.kv_heads =
      full && config.num_global_key_value_heads != 0 ? config.num_global_key_value_heads : config.num_key_value_heads;
  plan.head_dim = full ? config.global_head_dim : config.head_dim;
  plan.window = full ? 0 : config.sliding_window;
  plan.rope_theta = rope.theta;
  plan.rotary_pairs = plan.head_dim / 2;
  if (rope.type == RopeType::kProportional) {
    plan.rotary_pairs = static_cast<int>(rope.partial_rotary_factor * plan.head_dim / 2);
  }
  plan.v_is_k = full && config.attention_k_eq_v;
  return plan;
}

}  // namespace

std::vector<float> InverseFrequencies(const LayerPlan& plan) {
  std::vector<float> out(static_cast<size_t>(plan.rotary_pairs));
  for (size_t j = 0; j < out.size(); ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(plan.head_dim);
    out[j] = 1.0f / std::pow(static_cast<float>(plan.rope_theta), exponent);
  }
  return out;
}

ModelPlan MakeModelPlan(const Config& config) {
  ModelPlan plan;
  plan.config = config;
  const int first_shared = config.num_hidden_layers - config.num_kv_shared_layers;
  plan.last_kv_layer = first_shared - 1;
  std::array<int, kKvGroups> last_writer = {-1, -1};
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    LayerPlan layer = AttentionPlan(config, i);
    layer.writes_kv = i < first_shared;
    layer.ffn_width = config.intermediate_size * (config.use_double_wide_mlp && !layer.writes_kv ? 2 : 1);
    layer.has_experts = config.enable_moe_block;
    const auto type = static_cast<size_t>(layer.attention);
    KvGroup& group = plan.kv.groups[type];
    if (layer.writes_kv) {
      group.kv_heads = layer.kv_heads;
      group.head_dim = layer.head_dim;
      group.window = layer.window;
      layer.kv_slot = group.layers++;
      layer.kv_source = last_writer[type] = i;
    } else if (last_writer[type] < 0) {
      Throw(ErrorKind::kUnsupported,
            "layer " + std::to_string(i) +
                ": found no earlier layer of its type that writes K/V, wanted one, as the last " +
                std::to_string(config.num_kv_shared_layers) + " layers share (num_kv_shared_layers)");
    } else {
      layer.kv_slot = group.layers - 1;
      layer.kv_source = last_writer[type];
    }
    plan.layers.push_back(layer);
  }
  return plan;
}

}  // namespace lapidary
