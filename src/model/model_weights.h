#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/tensor_index.h"
#include "model/model_plan.h"

namespace lapidary {

// A weight in place: row-major [experts,] rows x cols, or a vector (rows == 1). data == nullptr: the model has none.
struct Weight {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
  int64_t experts = 1;
  int64_t rows = 0;
  int64_t cols = 0;

  explicit operator bool() const { return data != nullptr; }
  int64_t elements() const { return experts * rows * cols; }
  int64_t size_bytes() const { return elements() * static_cast<int64_t>(SizeOf(dtype)); }
};

// The values times `factor`; none where there is no weight.
std::vector<float> ReadVector(const Weight& weight, float factor = 1.0f);

// Names follow the checkpoint's tensors. Shapes: D hidden, F ffn_width, P per-layer width, E experts, M expert width.
struct LayerWeights {
  Weight input_layernorm;             // [D]
  Weight q_proj;                      // [heads * head_dim, D]
  Weight k_proj;                      // [kv_heads * head_dim, D]; only when writes_kv
  Weight v_proj;                      // [kv_heads * head_dim, D]; only when writes_kv and not v_is_k
  Weight q_norm, k_norm;              // [head_dim]; k_norm only when writes_kv
  Weight o_proj;                      // [D, heads * head_dim]
  Weight post_attention_layernorm;    // [D]
  Weight pre_feedforward_layernorm;   // [D]
  Weight gate_proj, up_proj;          // [F, D]
  Weight down_proj;                   // [D, F]
  Weight post_feedforward_layernorm;  // [D]
  // Experts, only when has_experts.
  Weight router_proj;              // [E, D]
  Weight router_scale;             // [D]
  Weight router_per_expert_scale;  // [E]
  Weight experts_gate_up;          // [E, 2 M, D], gate rows first
  Weight experts_down;             // [E, D, M]
  Weight post_feedforward_layernorm_1, post_feedforward_layernorm_2, pre_feedforward_layernorm_2;  // [D]
  // Per-layer inputs, only when P > 0.
  Weight per_layer_input_gate;       // [P, D]
  Weight per_layer_projection;       // [D, P]
  Weight post_per_layer_input_norm;  // [D]
  float layer_scalar = 1.0f;
};

struct ModelWeights {
  Weight embed_tokens;                // [V, D]; also the output head
  Weight embed_tokens_per_layer;      // [V, L * P]; only when P > 0, like the next two
  Weight per_layer_model_projection;  // [L * P, D]
  Weight per_layer_projection_norm;   // [P]
  Weight norm;                        // [D]
  std::vector<LayerWeights> layers;
};

// One tensor the model reads.
struct WeightSpec {
  std::string name;
  std::vector<int64_t> shape;
};

// Every tensor that a forward pass of `plan` reads, in the order of the layers. K/V tensors of sharing layers are not
// among them, present in the file or not.
std::vector<WeightSpec> RequiredWeights(const ModelPlan& plan);

// Checks presence, type (BF16, F16, F32) and shape of every required tensor and points at its bytes inside `index`,
// which must outlive the result. Throws Error: kNotFound (missing tensor), kUnsupported (type), kCorruptFile (shape, or
// per-layer inputs, experts or layers in the file that the config leaves out).
ModelWeights BindWeights(const TensorIndex& index, const ModelPlan& plan);

// How a model uses a checkpoint, in tensors and bytes as stored.
struct WeightUse {
  std::vector<bool> is_read;  // for each of TensorIndex::tensors()
  size_t read_tensors = 0, ignored_tensors = 0;
  int64_t read_bytes = 0, ignored_bytes = 0;
  int64_t table_bytes = 0;      // embed_tokens_per_layer: part of read_bytes, but only single rows are ever touched
  int64_t per_token_bytes = 0;  // weights that one decoded token reads: all but that table, and of the experts top_k
};

// Checks the weights like BindWeights and throws the same errors.
WeightUse SummarizeUse(const TensorIndex& index, const ModelPlan& plan);

}  // namespace lapidary
