#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

enum class AttentionType : uint8_t { kSliding, kFull };
enum class RopeType : uint8_t { kDefault, kProportional };

struct RopeParameters {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;  // kProportional: share of the pairs that rotate
};

// The text settings of a Gemma 4 `config.json`, named as there. Values are checked: positive where they must be, within
// sane bounds, consistent with each other. Source: transformers 5.17, models/gemma4/configuration_gemma4.py.
struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;
  int num_global_key_value_heads = 0;  // of full layers when attention_k_eq_v; 0: num_key_value_heads
  int head_dim = 0;                    // sliding layers
  int global_head_dim = 0;             // full layers
  bool attention_k_eq_v = false;
  std::vector<AttentionType> layer_types;  // [num_hidden_layers]
  int64_t sliding_window = 0;
  RopeParameters rope_sliding, rope_full;
  double rms_norm_eps = 1e-6;
  std::optional<double> final_logit_softcapping;
  int64_t vocab_size_per_layer_input = 0;
  int64_t hidden_size_per_layer_input = 0;  // 0: no per-layer inputs
  int num_kv_shared_layers = 0;
  bool use_double_wide_mlp = false;
  bool enable_moe_block = false;
  int num_experts = 0;
  int top_k_experts = 0;
  int64_t moe_intermediate_size = 0;
  int64_t max_position_embeddings = 0;
  std::vector<int32_t> eos_token_ids;  // as config.json has them; top level and text_config merged
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> pad_token_id;
  std::string tensor_prefix;  // "model.language_model." or "model."
  std::string model_type;     // as found at the top of the file
};

// Accepts the multimodal form (settings under `text_config`) and the text-only form. `where` names the file in errors.
// Throws Error: kCorruptFile (not JSON, missing or mistyped key), kUnsupported (unknown layer type, rope type,
// activation, attention bias), kInvalidArgument (a number out of bounds); each names the key, found and wanted.
Config ParseConfig(std::string_view json_text, const std::string& where);
// Reads `folder`/config.json.
Config LoadConfig(const std::string& folder);

// Defaults for sampling and stopping from `generation_config.json`. Absent keys stay empty.
struct GenerationConfig {
  std::vector<int32_t> eos_token_ids;
  std::vector<int32_t> suppress_tokens;
  std::optional<int32_t> bos_token_id;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<bool> do_sample;
};

GenerationConfig ParseGenerationConfig(std::string_view json_text, const std::string& where);
// Reads `folder`/generation_config.json; a folder without one gives the empty defaults.
GenerationConfig LoadGenerationConfig(const std::string& folder);

// The ids that end a text: the union of both files', ascending, without duplicates.
std::vector<int32_t> EosTokenIds(const Config& config, const GenerationConfig& generation);

}  // namespace lapidary
