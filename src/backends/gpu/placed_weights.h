#pragma once

#include <cstdint>
#include <vector>

#include "base/progress.h"
#include "kernels/gpu/runtime.h"
#include "model/model_plan.h"
#include "model/model_weights.h"

namespace lapidary::gpu {

// A bfloat16 matrix [rows, cols] in device memory, or in pinned host memory that the device reads.
struct DeviceMatrix {
  const uint16_t* data = nullptr;
  int32_t rows = 0;
  int32_t cols = 0;

  explicit operator bool() const { return data != nullptr; }
};

// Weights in device memory: matrices as stored, vectors widened to float32. Shapes: D hidden, F ffn_width, P per-layer
// width, E experts, M expert width.
struct PlacedLayer {
  const float* input_layernorm = nullptr;  // [D]
  // One after another, so that one product gives all: [(heads + 2 kv_heads) * head_dim, D]. Without K and V where the
  // layer has none, without V where V is K.
  DeviceMatrix qkv;
  const float *q_norm = nullptr, *k_norm = nullptr;  // [head_dim]
  DeviceMatrix o_proj;
  const float* post_attention_layernorm = nullptr;    // [D]
  const float* pre_feedforward_layernorm = nullptr;   // [D]
  DeviceMatrix gate_up;                               // [2 F, D], gate first
  DeviceMatrix down_proj;                             // [D, F]
  const float* post_feedforward_layernorm = nullptr;  // [D]

  DeviceMatrix router_proj;                        // [E, D]
  const float* router_scale = nullptr;             // [D], times D^-0.5
  const float* router_per_expert_scale = nullptr;  // [E]
  DeviceMatrix experts_gate_up;                    // [E * 2 M, D]
  DeviceMatrix experts_down;                       // [E * D, M]
  const float *post_feedforward_layernorm_1 = nullptr, *post_feedforward_layernorm_2 = nullptr,
              *pre_feedforward_layernorm_2 = nullptr;  // [D]

  DeviceMatrix per_layer_input_gate, per_layer_projection;  // [P, D], [D, P]
  const float* post_per_layer_input_norm = nullptr;         // [D]
  float layer_scalar = 1.0f;
};

struct PlacedWeights {
  DeviceMatrix embed_tokens;                         // [V, D]
  DeviceMatrix embed_tokens_per_layer;               // [V, L * P]
  DeviceMatrix per_layer_model_projection;           // [L * P, D]
  const float* per_layer_projection_norm = nullptr;  // [P]
  const float* norm = nullptr;                       // [D]
  std::vector<PlacedLayer> layers;

  DeviceMemory matrices, vectors;  // what the pointers point into
  PinnedMemory host_table;         // embed_tokens_per_layer when it stays on the host
};

// Copies the weights to the device; `table_on_host` leaves the per-layer embedding table in pinned host memory.
// `weights` are not needed afterwards. Throws Error: kUnsupported (a matrix that is not BF16), kOutOfMemory, kDevice.
PlacedWeights PlaceWeights(const ModelPlan& plan, const ModelWeights& weights, bool table_on_host,
                           const ProgressFn& progress);

// Bytes of matrices that PlaceWeights puts into device memory.
int64_t DeviceWeightBytes(const ModelPlan& plan, const ModelWeights& weights, bool table_on_host);

}  // namespace lapidary::gpu
