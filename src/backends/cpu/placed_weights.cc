#include "backends/cpu/placed_weights.h"

#include <cmath>
#include <cstddef>

#include "kernels/cpu/elementwise.h"

namespace lapidary::cpu {
namespace {

WeightMatrix Matrix(const Weight& weight) { return {weight.data, weight.dtype, weight.rows, weight.cols}; }

std::vector<float> Vector(const Weight& weight, float factor = 1.0f) {
  std::vector<float> out(static_cast<size_t>(weight.elements()));
  if (weight) LoadRow(weight.data, weight.dtype, out.size(), factor, out.data());
  return out;
}

std::vector<WeightMatrix> Experts(const Weight& weight) {
  std::vector<WeightMatrix> out;
  const int64_t bytes = weight.rows * weight.cols * static_cast<int64_t>(SizeOf(weight.dtype));
  for (int64_t e = 0; e < weight.experts; ++e) {
    out.push_back({static_cast<const std::byte*>(weight.data) + e * bytes, weight.dtype, weight.rows, weight.cols});
  }
  return out;
}

PlacedLayer PlaceLayer(const LayerPlan& plan, const LayerWeights& w, int64_t hidden) {
  PlacedLayer out;
  out.input_layernorm = Vector(w.input_layernorm);
  out.q_proj = Matrix(w.q_proj);
  out.k_proj = Matrix(w.k_proj);
  out.v_proj = Matrix(w.v_proj);
  out.o_proj = Matrix(w.o_proj);
  out.q_norm = Vector(w.q_norm);
  out.k_norm = Vector(w.k_norm);
  out.post_attention_layernorm = Vector(w.post_attention_layernorm);
  out.pre_feedforward_layernorm = Vector(w.pre_feedforward_layernorm);
  out.gate_proj = Matrix(w.gate_proj);
  out.up_proj = Matrix(w.up_proj);
  out.down_proj = Matrix(w.down_proj);
  out.post_feedforward_layernorm = Vector(w.post_feedforward_layernorm);
  if (plan.has_experts) {
    out.router_proj = Matrix(w.router_proj);
    out.router_scale = Vector(w.router_scale, 1.0f / std::sqrt(static_cast<float>(hidden)));
    out.router_per_expert_scale = Vector(w.router_per_expert_scale);
    out.experts_gate_up = Experts(w.experts_gate_up);
    out.experts_down = Experts(w.experts_down);
    out.post_feedforward_layernorm_1 = Vector(w.post_feedforward_layernorm_1);
    out.post_feedforward_layernorm_2 = Vector(w.post_feedforward_layernorm_2);
    out.pre_feedforward_layernorm_2 = Vector(w.pre_feedforward_layernorm_2);
  }
  out.per_layer_input_gate = Matrix(w.per_layer_input_gate);
  out.per_layer_projection = Matrix(w.per_layer_projection);
  out.post_per_layer_input_norm = Vector(w.post_per_layer_input_norm);
  out.layer_scalar = w.layer_scalar;
  return out;
}

}  // namespace

PlacedWeights PlaceWeights(const ModelPlan& plan, const ModelWeights& weights) {
  PlacedWeights out;
  out.embed_tokens = Matrix(weights.embed_tokens);
  out.embed_tokens_per_layer = Matrix(weights.embed_tokens_per_layer);
  out.per_layer_model_projection = Matrix(weights.per_layer_model_projection);
  out.per_layer_projection_norm = Vector(weights.per_layer_projection_norm);
  out.norm = Vector(weights.norm);
  for (const LayerPlan& layer : plan.layers) {
    out.layers.push_back(PlaceLayer(layer, weights.layers[static_cast<size_t>(layer.index)], plan.hidden()));
  }
  return out;
}

}  // namespace lapidary::cpu
