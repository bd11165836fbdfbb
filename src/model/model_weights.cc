#include "model/model_weights.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace lapidary {
namespace {

// Visits every tensor of a model: visit(name, shape, weight). One list serves both RequiredWeights and BindWeights.
using Visit = std::function<void(const std::string& name, std::vector<int64_t> shape, Weight& weight)>;

void VisitAttention(const ModelPlan& plan, const LayerPlan& layer, const std::string& prefix, LayerWeights& w,
                    const Visit& visit) {
  const int64_t hidden = plan.hidden(), head_dim = layer.head_dim;
  const int64_t q_width = layer.heads * head_dim, kv_width = layer.kv_heads * head_dim;
  visit(prefix + "q_proj.weight", {q_width, hidden}, w.q_proj);
  visit(prefix + "q_norm.weight", {head_dim}, w.q_norm);
  if (layer.writes_kv) {
    visit(prefix + "k_proj.weight", {kv_width, hidden}, w.k_proj);
    visit(prefix + "k_norm.weight", {head_dim}, w.k_norm);
    if (!layer.v_is_k) visit(prefix + "v_proj.weight", {kv_width, hidden}, w.v_proj);
  }
  visit(prefix + "o_proj.weight", {hidden, q_width}, w.o_proj);
}

void VisitExperts(const ModelPlan& plan, const std::string& prefix, LayerWeights& w, const Visit& visit) {
  const int64_t hidden = plan.hidden(), experts = plan.config.num_experts, width = plan.config.moe_intermediate_size;
  visit(prefix + "router.proj.weight", {experts, hidden}, w.router_proj);
  visit(prefix + "router.scale", {hidden}, w.router_scale);
  visit(prefix + "router.per_expert_scale", {experts}, w.router_per_expert_scale);
  visit(prefix + "experts.gate_up_proj", {experts, 2 * width, hidden}, w.experts_gate_up);
  visit(prefix + "experts.down_proj", {experts, hidden, width}, w.experts_down);
  visit(prefix + "post_feedforward_layernorm_1.weight", {hidden}, w.post_feedforward_layernorm_1);
  visit(prefix + "post_feedforward_layernorm_2.weight", {hidden}, w.post_feedforward_layernorm_2);
  visit(prefix + "pre_feedforward_layernorm_2.weight", {hidden}, w.pre_feedforward_layernorm_2);
}

void VisitLayer(const ModelPlan& plan, const LayerPlan& layer, LayerWeights& w, Weight& scalar, const Visit& visit) {
  const int64_t hidden = plan.hidden(), per_layer = plan.per_layer_width();
  const std::string prefix = plan.config.tensor_prefix + "layers." + std::to_string(layer.index) + ".";
  visit(prefix + "input_layernorm.weight", {hidden}, w.input_layernorm);
  VisitAttention(plan, layer, prefix + "self_attn.", w, visit);
  visit(prefix + "post_attention_layernorm.weight", {hidden}, w.post_attention_layernorm);
  visit(prefix + "pre_feedforward_layernorm.weight", {hidden}, w.pre_feedforward_layernorm);
  visit(prefix + "mlp.gate_proj.weight", {layer.ffn_width, hidden}, w.gate_proj);
  visit(prefix + "mlp.up_proj.weight", {layer.ffn_width, hidden}, w.up_proj);
  visit(prefix + "mlp.down_proj.weight", {hidden, layer.ffn_width}, w.down_proj);
  visit(prefix + "post_feedforward_layernorm.weight", {hidden}, w.post_feedforward_layernorm);
  if (layer.has_experts) VisitExperts(plan, prefix, w, visit);
  if (per_layer > 0) {
    visit(prefix + "per_layer_input_gate.weight", {per_layer, hidden}, w.per_layer_input_gate);
    visit(prefix + "per_layer_projection.weight", {hidden, per_layer}, w.per_layer_projection);
    visit(prefix + "post_per_layer_input_norm.weight", {hidden}, w.post_per_layer_input_norm);
  }
  visit(prefix + "layer_scalar", {1}, scalar);
}

// `scalars` [layers] receives the layer_scalar tensors.
void VisitModel(const ModelPlan& plan, ModelWeights& w, std::vector<Weight>& scalars, const Visit& visit) {
  const Config& config = plan.config;
  const std::string& prefix = config.tensor_prefix;
  const int64_t hidden = plan.hidden(), per_layer = plan.per_layer_width();
  const int64_t all_layers = per_layer * config.num_hidden_layers;
  visit(prefix + "embed_tokens.weight", {config.vocab_size, hidden}, w.embed_tokens);
  if (per_layer > 0) {
    visit(prefix + "embed_tokens_per_layer.weight", {config.vocab_size_per_layer_input, all_layers},
          w.embed_tokens_per_layer);
    visit(prefix + "per_layer_model_projection.weight", {all_layers, hidden}, w.per_layer_model_projection);
    visit(prefix + "per_layer_projection_norm.weight", {per_layer}, w.per_layer_projection_norm);
  }
  w.layers.resize(plan.layers.size());
  scalars.resize(plan.layers.size());
  for (size_t i = 0; i < plan.layers.size(); ++i) VisitLayer(plan, plan.layers[i], w.layers[i], scalars[i], visit);
  visit(prefix + "norm.weight", {hidden}, w.norm);
}

std::optional<DType> ToDType(const std::string& stored_type) {
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    if (stored_type == NameOf(type)) return type;
  }
  return std::nullopt;
}

Weight Bind(const TensorIndex& index, const std::string& name, const std::vector<int64_t>& shape) {
  const StoredTensor* tensor = index.Find(name);
  if (tensor == nullptr) {
    Throw(ErrorKind::kNotFound,
          "tensor \"" + name + "\": found none in the checkpoint, wanted one of shape " + Json(shape).dump());
  }
  const std::string where = index.files()[tensor->file].path() + ": tensor \"" + name + "\": ";
  const std::optional<DType> type = ToDType(tensor->stored_type);
  if (!type)
    Throw(ErrorKind::kUnsupported, where + "found the dtype " + tensor->stored_type + ", wanted BF16, F16 or F32");
  if (tensor->shape != shape) {
    Throw(ErrorKind::kCorruptFile,
          where + "found the shape " + Printable(Json(tensor->shape).dump()) + ", wanted " + Json(shape).dump());
  }
  if (reinterpret_cast<uintptr_t>(tensor->bytes.data()) % SizeOf(*type) != 0) {
    const auto offset = tensor->bytes.data() - index.files()[tensor->file].bytes().data();
    Throw(ErrorKind::kUnsupported, where + "found it at byte " + std::to_string(offset) +
                                       " of the file, wanted a multiple of " + std::to_string(SizeOf(*type)) +
                                       " so that it can be read in place");
  }
  Weight weight;
  weight.data = tensor->bytes.data();
  weight.dtype = *type;
  weight.experts = shape.size() == 3 ? shape[0] : 1;
  weight.rows = shape.size() >= 2 ? shape[shape.size() - 2] : 1;
  weight.cols = shape.back();
  return weight;
}

[[noreturn]] void ThrowContradiction(const TensorIndex& index, const StoredTensor& tensor, const std::string& setting) {
  Throw(ErrorKind::kCorruptFile, index.files()[tensor.file].path() + ": tensor \"" + Printable(tensor.name) +
                                     "\": contradicts config.json: found " + setting);
}

// The N of a tensor "<layers>N.<rest>"; -1 for any other name.
int64_t LayerOf(std::string_view name, std::string_view layers) {
  if (!name.starts_with(layers)) return -1;
  name.remove_prefix(layers.size());
  int32_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const bool complete = error == std::errc() && end != name.data() + name.size() && *end == '.';
  return complete ? layer : -1;
}

// A config that leaves out a part which the file has would compute another model without any tensor being missed.
void RefuseLeftOutParts(const TensorIndex& index, const Config& config) {
  const std::string layers = config.tensor_prefix + "layers.";
  const StoredTensor* table = index.Find(config.tensor_prefix + "embed_tokens_per_layer.weight");
  if (table != nullptr && config.hidden_size_per_layer_input == 0) {
    ThrowContradiction(index, *table, "hidden_size_per_layer_input 0 (or none), wanted more than 0");
  }
  const StoredTensor* router = index.Find(layers + "0.router.proj.weight");
  if (router != nullptr && !config.enable_moe_block) {
    ThrowContradiction(index, *router, "enable_moe_block false (or none), wanted true");
  }
  const StoredTensor* last = nullptr;
  int64_t stored_layers = config.num_hidden_layers;
  for (const StoredTensor& tensor : index.tensors()) {
    const int64_t layer = LayerOf(tensor.name, layers);
    if (layer < stored_layers) continue;
    stored_layers = layer + 1;
    last = &tensor;
  }
  if (last != nullptr) {
    ThrowContradiction(
        index, *last,
        "num_hidden_layers " + std::to_string(config.num_hidden_layers) + ", wanted " + std::to_string(stored_layers));
  }
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1Fu, fraction = bits & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

}  // namespace

std::vector<float> ReadVector(const Weight& weight, float factor) {
  std::vector<float> out(static_cast<size_t>(weight.elements()));
  const auto* bytes = static_cast<const std::byte*>(weight.data);
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t bits = 0;  // little-endian
    std::memcpy(&bits, bytes + i * SizeOf(weight.dtype), SizeOf(weight.dtype));
    const auto half = static_cast<uint16_t>(bits);
    const float value = weight.dtype == DType::kF32    ? std::bit_cast<float>(bits)
                        : weight.dtype == DType::kBF16 ? ToFloat(BF16{half})
                                                       : HalfToFloat(half);
    out[i] = value * factor;
  }
  return out;
}

std::vector<WeightSpec> RequiredWeights(const ModelPlan& plan) {
  std::vector<WeightSpec> specs;
  ModelWeights ignored;
  std::vector<Weight> scalars;
  VisitModel(plan, ignored, scalars, [&](const std::string& name, std::vector<int64_t> shape, Weight&) {
    specs.push_back({name, std::move(shape)});
  });
  return specs;
}

ModelWeights BindWeights(const TensorIndex& index, const ModelPlan& plan) {
  RefuseLeftOutParts(index, plan.config);
  ModelWeights weights;
  std::vector<Weight> scalars;
  VisitModel(plan, weights, scalars, [&](const std::string& name, const std::vector<int64_t>& shape, Weight& weight) {
    weight = Bind(index, name, shape);
  });
  for (size_t i = 0; i < scalars.size(); ++i) weights.layers[i].layer_scalar = ReadVector(scalars[i])[0];
  return weights;
}

WeightUse SummarizeUse(const TensorIndex& index, const ModelPlan& plan) {
  WeightUse use;
  const ModelWeights weights = BindWeights(index, plan);
  use.is_read.assign(index.tensors().size(), false);
  for (const WeightSpec& spec : RequiredWeights(plan)) {
    use.is_read[static_cast<size_t>(index.Find(spec.name) - index.tensors().data())] = true;
  }
  for (size_t i = 0; i < index.tensors().size(); ++i) {
    const auto bytes = static_cast<int64_t>(index.tensors()[i].bytes.size());
    (use.is_read[i] ? use.read_bytes : use.ignored_bytes) += bytes;
    ++(use.is_read[i] ? use.read_tensors : use.ignored_tensors);
  }
  if (weights.embed_tokens_per_layer) use.table_bytes = weights.embed_tokens_per_layer.size_bytes();
  use.per_token_bytes = use.read_bytes - use.table_bytes;
  const int64_t idle = plan.config.num_experts - plan.config.top_k_experts;
  for (const LayerWeights& layer : weights.layers) {
    for (const Weight* experts : {&layer.experts_gate_up, &layer.experts_down}) {
      if (*experts) use.per_token_bytes -= experts->size_bytes() / experts->experts * idle;
    }
  }
  return use;
}

}  // namespace lapidary
