#pragma once

#include <vector>

#include "kernels/cpu/matmul.h"
#include "model/model_plan.h"
#include "model/model_weights.h"

namespace lapidary::cpu {

// Weights as the kernels want them: matrices in place in the mapping, norms and other vectors widened to float32.
// Shapes: D hidden, F ffn_width, P per-layer width, E experts, M expert width.
struct PlacedLayer {
  std::vector<float> input_layernorm;            // [D]
  WeightMatrix q_proj, k_proj, v_proj, o_proj;   // k_proj, v_proj empty where the layer has none
  std::vector<float> q_norm, k_norm;             // [head_dim]
  std::vector<float> post_attention_layernorm;   // [D]
  std::vector<float> pre_feedforward_layernorm;  // [D]
  WeightMatrix gate_proj, up_proj, down_proj;
  std::vector<float> post_feedforward_layernorm;  // [D]

  WeightMatrix router_proj;                                 // [E, D]
  std::vector<float> router_scale;                          // [D], times D^-0.5
  std::vector<float> router_per_expert_scale;               // [E]
  std::vector<WeightMatrix> experts_gate_up, experts_down;  // E of [2M, D], [D, M]
  std::vector<float> post_feedforward_layernorm_1, post_feedforward_layernorm_2, pre_feedforward_layernorm_2;  // [D]

  WeightMatrix per_layer_input_gate, per_layer_projection;
  std::vector<float> post_per_layer_input_norm;  // [D]
  float layer_scalar = 1.0f;
};

struct PlacedWeights {
  WeightMatrix embed_tokens;                     // [V, D]
  WeightMatrix embed_tokens_per_layer;           // [V, L * P]
  WeightMatrix per_layer_model_projection;       // [L * P, D]
  std::vector<float> per_layer_projection_norm;  // [P]
  std::vector<float> norm;                       // [D]
  std::vector<PlacedLayer> layers;
};

// `weights` and the mapping behind it must outlive the result.
PlacedWeights PlaceWeights(const ModelPlan& plan, const ModelWeights& weights);

}  // namespace lapidary::cpu
