#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/kv_layout.h"

namespace lapidary {

// Everything in which one decoder layer differs from another, resolved once.
struct LayerPlan {
  int index = 0;
  AttentionType attention = AttentionType::kSliding;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;    // 0: sees everything before it
  int rotary_pairs = 0;  // pairs (j, j + head_dim/2), j < rotary_pairs, rotate; the others stay
  double rope_theta = 0;
  bool writes_kv = true;  // false: attends to the cache of an earlier layer
  bool v_is_k = false;    // V is the raw k_proj output (no v_proj)
  int kv_slot = 0;        // slot in its KvGroup: its own, or the one of the layer it borrows from
  int kv_source = 0;      // the layer that wrote that slot (== index when writes_kv)
  int64_t ffn_width = 0;
  bool has_experts = false;
};

// inv_freq [rotary_pairs] = rope_theta^(-2j / head_dim), each rounded to float32 as the reference has it.
std::vector<float> InverseFrequencies(const LayerPlan& plan);

struct ModelPlan {
  Config config;
  std::vector<LayerPlan> layers;
  KvLayout kv;
  int last_kv_layer = 0;  // a token whose logits nobody wants may stop once this layer has written its K/V

  int64_t hidden() const { return config.hidden_size; }
  int64_t per_layer_width() const { return config.hidden_size_per_layer_input; }
  // Ids must lie in [0, vocab).
  int64_t vocab() const { return config.vocab_size; }
};

// Throws Error kUnsupported when a sharing layer has no earlier layer of its type that writes K/V.
ModelPlan MakeModelPlan(const Config& config);

}  // namespace lapidary
