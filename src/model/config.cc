#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace lapidary {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;

// One JSON object of settings, read key by key. A key that is null counts as absent.
class Settings {
 public:
  Settings(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) {
      Throw(ErrorKind::kCorruptFile, where_ + ": found JSON " + object.type_name() + ", wanted an object");
    }
  }

  const std::string& where() const { return where_; }

  const Json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool IsNull(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() && found->is_null();
  }

  [[noreturn]] void Fail(ErrorKind kind, const std::string& key, const Json& found, const std::string& wanted) const {
    Throw(kind, where_ + ": " + key + ": found " +
                    Printable(found.dump(-1, ' ', false, Json::error_handler_t::replace)) + ", wanted " + wanted);
  }

  int64_t ToInteger(const std::string& key, const Json& value, int64_t min, int64_t max) const {
    if (!value.is_number_integer()) Fail(ErrorKind::kCorruptFile, key, value, "a whole number");
    const bool too_large =
        value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (too_large || value.get<int64_t>() < min || value.get<int64_t>() > max) {
      Fail(ErrorKind::kInvalidArgument, key, value, std::to_string(min) + " to " + std::to_string(max));
    }
    return value.get<int64_t>();
  }

  double ToReal(const std::string& key, const Json& value, double min, double max) const {
    if (!value.is_number()) Fail(ErrorKind::kCorruptFile, key, value, "a number");
    const double number = value.get<double>();
    if (!(number >= min && number <= max)) {
      Fail(ErrorKind::kInvalidArgument, key, value, Json(min).dump() + " to " + Json(max).dump());
    }
    return number;
  }

  int64_t Integer(const char* key, int64_t absent, int64_t min, int64_t max) const {
    const Json* value = Find(key);
    return value == nullptr ? absent : ToInteger(key, *value, min, max);
  }
  int Int(const char* key, int absent, int min, int max) const {
    return static_cast<int>(Integer(key, absent, min, max));
  }
  double Real(const char* key, double absent, double min, double max) const {
    const Json* value = Find(key);
    return value == nullptr ? absent : ToReal(key, *value, min, max);
  }
  std::optional<double> OptionalReal(const char* key, double min, double max) const {
    const Json* value = Find(key);
    return value == nullptr ? std::nullopt : std::optional(ToReal(key, *value, min, max));
  }
  bool Bool(const char* key, bool absent) const {
    const Json* value = Find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) Fail(ErrorKind::kCorruptFile, key, *value, "true or false");
    return value->get<bool>();
  }
  std::string String(const char* key, const std::string& absent) const {
    const Json* value = Find(key);
    if (value == nullptr) return absent;
    if (!value->is_string()) Fail(ErrorKind::kCorruptFile, key, *value, "a string");
    return value->get<std::string>();
  }
  Settings Object(const char* key) const { return Settings(object_.at(key), where_ + ": " + key); }

  std::optional<int32_t> TokenId(const char* key) const {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    return static_cast<int32_t>(ToInteger(key, *value, 0, kMaxTokenId));
  }
  // One id or a list of ids; nothing when absent.
  std::vector<int32_t> TokenIds(const char* key) const {
    const Json* value = Find(key);
    std::vector<int32_t> ids;
    if (value == nullptr) return ids;
    if (!value->is_array()) return {static_cast<int32_t>(ToInteger(key, *value, 0, kMaxTokenId))};
    for (const Json& id : *value) ids.push_back(static_cast<int32_t>(ToInteger(key, id, 0, kMaxTokenId)));
    return ids;
  }

 private:
  static constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

  const Json& object_;
  std::string where_;
};

// Bounds far above every published model that keep the bytes of a whole checkpoint inside 63 bits.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxHidden = 1 << 17;
constexpr int64_t kMaxFfnWidth = 1 << 20;
constexpr int64_t kMaxPerLayerWidth = 1 << 14;
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 4096;
constexpr int kMaxExperts = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

// `gemma4_unified` configs leave out per-layer inputs and have other defaults (configuration_gemma4_unified.py).
bool IsUnified(const std::string& model_type) { return model_type.starts_with("gemma4_unified"); }

void CheckModelType(const Settings& settings, bool nested) {
  const Json* found = settings.Find("model_type");
  if (found == nullptr)
    Throw(ErrorKind::kCorruptFile, settings.where() + ": found no model_type, wanted gemma4 or gemma4_text");
  const std::string type = settings.String("model_type", "");
  const bool known =
      nested ? type == "gemma4" || type == "gemma4_unified" : type == "gemma4_text" || type == "gemma4_unified_text";
  if (known) return;
  if (!nested && (type == "gemma4" || type == "gemma4_unified")) {
    Throw(ErrorKind::kCorruptFile, settings.where() + ": text_config: found none, wanted the text settings of " + type);
  }
  settings.Fail(ErrorKind::kUnsupported, "model_type", *found,
                nested ? "gemma4 (with text_config)" : "gemma4 or gemma4_text");
}

void ReadDimensions(const Settings& text, Config& config) {
  const bool unified = IsUnified(config.model_type);
  config.vocab_size = text.Integer("vocab_size", 262144, 1, kMaxVocab);
  config.hidden_size = text.Integer("hidden_size", 2304, 1, kMaxHidden);
  config.intermediate_size = text.Integer("intermediate_size", 9216, 1, kMaxFfnWidth);
  config.num_hidden_layers = text.Int("num_hidden_layers", 30, 1, kMaxLayers);
  config.num_attention_heads = text.Int("num_attention_heads", 8, 1, kMaxHeads);
  config.num_key_value_heads = text.Int("num_key_value_heads", 4, 1, kMaxHeads);
  config.head_dim = text.Int("head_dim", 256, 2, kMaxHeadDim);
  config.attention_k_eq_v = text.Bool("attention_k_eq_v", false);
  config.sliding_window = text.Integer("sliding_window", unified ? 1024 : 512, 1, kMaxPositions);
  config.max_position_embeddings = text.Integer("max_position_embeddings", unified ? 262144 : 131072, 1, kMaxPositions);
  config.rms_norm_eps = text.Real("rms_norm_eps", 1e-6, 1e-30, 1.0);
  config.final_logit_softcapping = text.OptionalReal("final_logit_softcapping", 1e-3, 1e9);
  config.num_kv_shared_layers = text.Int("num_kv_shared_layers", 0, 0, config.num_hidden_layers - 1);
  config.use_double_wide_mlp = text.Bool("use_double_wide_mlp", false);
}

void ReadPerLayerInputs(const Settings& text, Config& config) {
  const bool none = IsUnified(config.model_type) || text.IsNull("hidden_size_per_layer_input");
  config.hidden_size_per_layer_input =
      text.Integer("hidden_size_per_layer_input", none ? 0 : 256, 0, kMaxPerLayerWidth);
  if (config.hidden_size_per_layer_input == 0) return;
  config.vocab_size_per_layer_input = text.Integer("vocab_size_per_layer_input", 262144, 1, kMaxVocab);
  if (config.vocab_size_per_layer_input < config.vocab_size) {
    text.Fail(ErrorKind::kInvalidArgument, "vocab_size_per_layer_input", config.vocab_size_per_layer_input,
              "at least vocab_size, " + std::to_string(config.vocab_size));
  }
}

void ReadExperts(const Settings& text, Config& config) {
  config.enable_moe_block = text.Bool("enable_moe_block", false);
  if (!config.enable_moe_block) return;
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    if (text.Find(key) == nullptr) {
      Throw(ErrorKind::kCorruptFile,
            text.where() + ": " + key + ": found none, wanted a number as enable_moe_block is true");
    }
  }
  config.num_experts = text.Int("num_experts", 0, 1, kMaxExperts);
  config.top_k_experts = text.Int("top_k_experts", 0, 1, config.num_experts);
  config.moe_intermediate_size = text.Integer("moe_intermediate_size", 0, 1, kMaxFfnWidth);
}

void ReadLayerTypes(const Settings& text, Config& config) {
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  const Json* types = text.Find("layer_types");
  if (types == nullptr) {
    for (size_t i = 0; i < layers; ++i) {
      config.layer_types.push_back(i % 6 == 5 ? AttentionType::kFull : AttentionType::kSliding);
    }
  } else {
    if (!types->is_array()) text.Fail(ErrorKind::kCorruptFile, "layer_types", *types, "an array");
    if (types->size() != layers) {
      Throw(ErrorKind::kInvalidArgument, text.where() + ": layer_types: found " + std::to_string(types->size()) +
                                             " entries, wanted " + std::to_string(layers) +
                                             ", one for each of num_hidden_layers");
    }
    for (const Json& type : *types) {
      if (type != "full_attention" && type != "sliding_attention") {
        text.Fail(ErrorKind::kUnsupported, "layer_types", type, "sliding_attention or full_attention");
      }
      config.layer_types.push_back(type == "full_attention" ? AttentionType::kFull : AttentionType::kSliding);
    }
  }
  // The reference makes the last layer full whatever the file says.
  config.layer_types.back() = AttentionType::kFull;
}

RopeParameters ReadRope(const Settings& all, const char* type) {
  const Settings one = all.Object(type);
  RopeParameters rope;
  const std::string kind = one.String("rope_type", "default");
  if (kind == "proportional") {
    rope.type = RopeType::kProportional;
    rope.partial_rotary_factor = one.Real("partial_rotary_factor", 1.0, 0.0, 1.0);
    if (one.Real("factor", 1.0, 0.0, 1e9) != 1.0) one.Fail(ErrorKind::kUnsupported, "factor", *one.Find("factor"), "1");
  } else if (kind != "default") {
    one.Fail(ErrorKind::kUnsupported, "rope_type", kind, "default or proportional");
  } else if (one.Real("partial_rotary_factor", 1.0, 0.0, 1.0) !=
             1.0) {  // the reference turns all pairs whatever it says
    one.Fail(ErrorKind::kUnsupported, "partial_rotary_factor", *one.Find("partial_rotary_factor"),
             "1 where rope_type is default");
  }
  const Json* theta = one.Find("rope_theta");
  if (theta == nullptr) Throw(ErrorKind::kCorruptFile, one.where() + ": rope_theta: found none, wanted a number");
  rope.theta = one.ToReal("rope_theta", *theta, 1.0, 1e15);
  return rope;
}

void ReadRopes(const Settings& text, Config& config) {
  config.rope_sliding = {RopeType::kDefault, 10000.0, 1.0};
  config.rope_full = {RopeType::kProportional, 1000000.0, 0.25};
  if (text.Find("rope_parameters") == nullptr) return;
  const Settings ropes = text.Object("rope_parameters");
  for (const auto& [type, name] :
       {std::pair(AttentionType::kSliding, "sliding_attention"), std::pair(AttentionType::kFull, "full_attention")}) {
    const bool used = std::count(config.layer_types.begin(), config.layer_types.end(), type) > 0;
    if (ropes.Find(name) != nullptr) {
      (type == AttentionType::kFull ? config.rope_full : config.rope_sliding) = ReadRope(ropes, name);
    } else if (used) {
      Throw(ErrorKind::kCorruptFile, ropes.where() + ": found no " + name + ", wanted one for each layer type");
    }
  }
}

// Head size and K/V heads of full layers: flat keys, as Google's files have them, or `per_layer_config`, as newer
// versions of transformers write them.
void ReadGlobalHeads(const Settings& text, Config& config) {
  config.global_head_dim = text.Int("global_head_dim", 512, 2, kMaxHeadDim);
  if (config.attention_k_eq_v)
    config.num_global_key_value_heads = text.Int("num_global_key_value_heads", 0, 1, kMaxHeads);
  if (text.Find("per_layer_config") == nullptr) return;
  const Json& overrides = *text.Find("per_layer_config");
  const Settings layers = text.Object("per_layer_config");
  bool seen = false;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool full = config.layer_types[static_cast<size_t>(layer)] == AttentionType::kFull;
    const std::string key = std::to_string(layer);
    int head_dim = config.head_dim, kv_heads = config.num_key_value_heads;
    if (layers.Find(key.c_str()) != nullptr) {
      const Settings one = layers.Object(key.c_str());
      for (const auto& [name, value] : overrides.at(key).items()) {
        if (name != "head_dim" && name != "num_key_value_heads") {
          one.Fail(ErrorKind::kUnsupported, Printable(name), value, "only head_dim and num_key_value_heads to differ");
        }
      }
      head_dim = one.Int("head_dim", head_dim, 2, kMaxHeadDim);
      kv_heads = one.Int("num_key_value_heads", kv_heads, 1, kMaxHeads);
    }
    if (!full ? head_dim != config.head_dim || kv_heads != config.num_key_value_heads
              : seen && (head_dim != config.global_head_dim || kv_heads != config.num_global_key_value_heads)) {
      Throw(ErrorKind::kUnsupported, layers.where() + ": layer " + key + ": found head_dim " +
                                         std::to_string(head_dim) + " and " + std::to_string(kv_heads) +
                                         " K/V heads, wanted those of the other layers of its type");
    }
    if (full) {
      config.global_head_dim = head_dim;
      config.num_global_key_value_heads = kv_heads;
      seen = true;
    }
  }
}

void CheckHeads(const Settings& text, const Config& config) {
  for (const int dimension : {config.head_dim, config.global_head_dim}) {
    if (dimension % 2 != 0)
      text.Fail(ErrorKind::kUnsupported, "head_dim, global_head_dim", dimension, "an even number");
  }
  const int global = config.num_global_key_value_heads;
  for (const int kv_heads : {config.num_key_value_heads, global == 0 ? config.num_key_value_heads : global}) {
    if (config.num_attention_heads % kv_heads != 0) {
      text.Fail(ErrorKind::kInvalidArgument, "num_key_value_heads, num_global_key_value_heads", kv_heads,
                "a divisor of num_attention_heads, " + std::to_string(config.num_attention_heads));
    }
  }
}

// Settings that change what has to be computed, in ways that no published Gemma 4 uses.
void RefuseUnsupported(const Settings& settings) {
  const auto require = [&](const char* key, const Json& wanted) {
    const Json* value = settings.Find(key);
    if (value != nullptr && *value != wanted) settings.Fail(ErrorKind::kUnsupported, key, *value, wanted.dump());
  };
  require("hidden_activation", "gelu_pytorch_tanh");
  require("attention_bias", false);
  require("tie_word_embeddings", true);
  const Json* bidirectional = settings.Find("use_bidirectional_attention");
  if (bidirectional != nullptr && *bidirectional != "vision") {
    settings.Fail(ErrorKind::kUnsupported, "use_bidirectional_attention", *bidirectional, "null or \"vision\"");
  }
}

std::vector<int32_t> SortedUnion(std::vector<int32_t> ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void ReadTokenIds(const Settings& top, const Settings& text, Config& config) {
  const auto has = [](const Settings& settings, const char* key) {
    return settings.Find(key) != nullptr || settings.IsNull(key);
  };
  config.eos_token_ids = SortedUnion(top.TokenIds("eos_token_id"), text.TokenIds("eos_token_id"));
  if (!has(top, "eos_token_id") && !has(text, "eos_token_id")) config.eos_token_ids = {1};
  const auto one = [&](const char* key, int32_t absent) {
    if (!has(top, key) && !has(text, key)) return std::optional(absent);
    const std::optional<int32_t> inner = text.TokenId(key);
    return inner ? inner : top.TokenId(key);
  };
  config.bos_token_id = one("bos_token_id", 2);
  config.pad_token_id = one("pad_token_id", 0);
}

std::string FileIn(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

Config ParseConfig(std::string_view json_text, const std::string& where) {
  const Json json = ParseJson(json_text, where);
  const Settings top(json, where);
  const bool nested = top.Find("text_config") != nullptr;
  CheckModelType(top, nested);
  const Settings text = nested ? top.Object("text_config") : top;
  Config config;
  config.model_type = top.String("model_type", "");
  config.tensor_prefix = nested ? "model.language_model." : "model.";
  if (nested) RefuseUnsupported(top);
  RefuseUnsupported(text);
  ReadDimensions(text, config);
  ReadPerLayerInputs(text, config);
  ReadExperts(text, config);
  ReadLayerTypes(text, config);
  ReadRopes(text, config);
  ReadGlobalHeads(text, config);
  CheckHeads(text, config);
  ReadTokenIds(top, text, config);
  return config;
}

Config LoadConfig(const std::string& folder) {
  const std::string path = FileIn(folder, "config.json");
  return ParseConfig(ReadFile(path, kMaxConfigBytes), path);
}

GenerationConfig ParseGenerationConfig(std::string_view json_text, const std::string& where) {
  const Json json = ParseJson(json_text, where);
  const Settings settings(json, where);
  GenerationConfig config;
  config.eos_token_ids = SortedUnion(settings.TokenIds("eos_token_id"), {});
  config.suppress_tokens = SortedUnion(settings.TokenIds("suppress_tokens"), {});
  config.bos_token_id = settings.TokenId("bos_token_id");
  config.temperature = settings.OptionalReal("temperature", 0.0, 1e9);
  config.top_p = settings.OptionalReal("top_p", 0.0, 1.0);
  config.min_p = settings.OptionalReal("min_p", 0.0, 1.0);
  config.repetition_penalty = settings.OptionalReal("repetition_penalty", 1e-9, 1e9);
  if (settings.Find("top_k") != nullptr) {
    config.top_k = settings.Integer("top_k", 0, 0, std::numeric_limits<int32_t>::max());
  }
  if (settings.Find("do_sample") != nullptr) config.do_sample = settings.Bool("do_sample", false);
  return config;
}

GenerationConfig LoadGenerationConfig(const std::string& folder) {
  const std::string path = FileIn(folder, "generation_config.json");
  std::error_code hidden;
  if (!std::filesystem::exists(path, hidden) && !hidden) return {};
  return ParseGenerationConfig(ReadFile(path, kMaxConfigBytes), path);
}

std::vector<int32_t> EosTokenIds(const Config& config, const GenerationConfig& generation) {
  return SortedUnion(config.eos_token_ids, generation.eos_token_ids);
}

}  // namespace lapidary
