#include <fmt/core.h>

#include "base/error.h"
#include "checkpoint/tensor_index.h"
#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cli/terminal.h"
#include "model/model_weights.h"

namespace lapidary {
namespace {

struct Options {
  ModelOptions model;
  bool json = false;
};

const char* NameOf(AttentionType type) { return type == AttentionType::kSliding ? "sliding" : "full"; }

Json ConfigJson(const Config& c) {
  Json layer_types = Json::array();
  for (const AttentionType type : c.layer_types) layer_types.push_back(NameOf(type));
  const auto rope = [](const RopeParameters& r) {
    return Json{{"type", r.type == RopeType::kDefault ? "default" : "proportional"},
                {"theta", r.theta},
                {"partial_rotary_factor", r.partial_rotary_factor}};
  };
  return {{"model_type", c.model_type},
          {"tensor_prefix", c.tensor_prefix},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_kv_shared_layers", c.num_kv_shared_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"num_global_key_value_heads", c.num_global_key_value_heads},
          {"head_dim", c.head_dim},
          {"global_head_dim", c.global_head_dim},
          {"attention_k_eq_v", c.attention_k_eq_v},
          {"use_double_wide_mlp", c.use_double_wide_mlp},
          {"hidden_size_per_layer_input", c.hidden_size_per_layer_input},
          {"vocab_size_per_layer_input", c.vocab_size_per_layer_input},
          {"layer_types", layer_types},
          {"sliding_window", c.sliding_window},
          {"max_position_embeddings", c.max_position_embeddings},
          {"rms_norm_eps", c.rms_norm_eps},
          {"final_logit_softcapping", c.final_logit_softcapping ? Json(*c.final_logit_softcapping) : Json()},
          {"rope_sliding", rope(c.rope_sliding)},
          {"rope_full", rope(c.rope_full)},
          {"enable_moe_block", c.enable_moe_block},
          {"num_experts", c.num_experts},
          {"top_k_experts", c.top_k_experts},
          {"moe_intermediate_size", c.moe_intermediate_size}};
}

Json LayersJson(const ModelPlan& plan) {
  Json layers = Json::array();
  for (const LayerPlan& layer : plan.layers) {
    layers.push_back({{"index", layer.index},
                      {"attention", NameOf(layer.attention)},
                      {"heads", layer.heads},
                      {"kv_heads", layer.kv_heads},
                      {"head_dim", layer.head_dim},
                      {"window", layer.window},
                      {"rotary_pairs", layer.rotary_pairs},
                      {"rope_theta", layer.rope_theta},
                      {"writes_kv", layer.writes_kv},
                      {"kv_source", layer.kv_source},
                      {"v_is_k", layer.v_is_k},
                      {"ffn_width", layer.ffn_width},
                      {"experts", layer.has_experts}});
  }
  return layers;
}

// K/V of one sequence of `ctx` tokens, run alone in steps of 256 rows.
Json KvJson(const KvLayout& layout, int64_t ctx, DType type) {
  int64_t per_token = 0, bytes = 0;
  const auto element = static_cast<int64_t>(SizeOf(type));
  for (const KvGroup& group : layout.groups) {
    if (group.layers == 0) continue;
    if (group.window == 0) per_token += group.elements_per_block() / kKvBlockTokens * element;
    bytes += BlocksNeeded(group, ctx, 256) * group.elements_per_block() * element;
  }
  return {{"bytes_per_token", per_token}, {"bytes_per_sequence", bytes}};
}

Json TensorsJson(const TensorIndex& index, const WeightUse& use) {
  Json tensors = Json::array();
  for (size_t i = 0; i < index.tensors().size(); ++i) {
    const StoredTensor& tensor = index.tensors()[i];
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.stored_type},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes.size()},
                       {"file", tensor.file},
                       {"used", static_cast<bool>(use.is_read[i])}});
  }
  return tensors;
}

int64_t Context(const Config& config, int64_t ctx) {
  const int64_t most = config.max_position_embeddings;
  if (ctx > most) {
    Throw(ErrorKind::kInvalidArgument,
          "context: found " + std::to_string(ctx) + " tokens, wanted at most the model's " + std::to_string(most));
  }
  return ctx == 0 ? most : ctx;
}

Json Inspect(const Options& o) {
  const std::string& folder = o.model.folder;
  const ModelPlan plan = MakeModelPlan(LoadConfig(folder));
  const TensorIndex index = TensorIndex::Open(folder);
  const WeightUse use = SummarizeUse(index, plan);
  const int64_t ctx = Context(plan.config, o.model.ctx);
  Json files = Json::array();
  for (const MappedFile& file : index.files()) files.push_back({{"path", file.path()}, {"bytes", file.bytes().size()}});
  return {{"model", folder},
          {"config", ConfigJson(plan.config)},
          {"layers", LayersJson(plan)},
          {"files", files},
          {"tensors", TensorsJson(index, use)},
          {"totals",
           {{"used", {{"tensors", use.read_tensors}, {"bytes", use.read_bytes}}},
            {"ignored", {{"tensors", use.ignored_tensors}, {"bytes", use.ignored_bytes}}}}},
          {"memory",
           {{"ctx", ctx},
            {"weights_mapped_bytes", use.read_bytes},
            {"weights_resident_bytes", use.read_bytes - use.table_bytes},
            {"per_layer_table_bytes", use.table_bytes},
            {"kv", {{"f32", KvJson(plan.kv, ctx, DType::kF32)}, {"bf16", KvJson(plan.kv, ctx, DType::kBF16)}}}}}};
}

std::string Bytes(const Json& bytes) { return FormatBytes(bytes.get<double>()); }

std::string LayerText(const Json& layer) {
  const std::string kv = layer["writes_kv"].get<bool>() ? (layer["v_is_k"].get<bool>() ? "own, V = K" : "own")
                                                        : fmt::format("of layer {}", layer["kv_source"].get<int>());
  return fmt::format("  {:>3}  {:<7}  {:>2} x {:<3}  {:>2}  {:<11}  {:>6}{}\n", layer["index"].get<int>(),
                     layer["attention"].get<std::string>(), layer["heads"].get<int>(), layer["head_dim"].get<int>(),
                     layer["kv_heads"].get<int>(), kv, layer["ffn_width"].get<int64_t>(),
                     layer["experts"].get<bool>() ? " + experts" : "");
}

std::string MemoryText(const Json& memory) {
  std::string text = fmt::format("Memory\n  weights, mapped {}, of them read only by rows {}\n",
                                 Bytes(memory["weights_mapped_bytes"]), Bytes(memory["per_layer_table_bytes"]));
  for (const char* type : {"f32", "bf16"}) {
    const Json& kv = memory["kv"][type];
    text += fmt::format("  K/V in {}: {} a token, {} for a sequence of {} tokens\n", type, Bytes(kv["bytes_per_token"]),
                        Bytes(kv["bytes_per_sequence"]), memory["ctx"].get<int64_t>());
  }
  return text;
}

std::string InspectText(const Json& json) {
  std::string text = json["model"].get<std::string>() + "\nConfig\n";
  for (const auto& [key, value] : json["config"].items()) {
    if (key != "layer_types") text += fmt::format("  {} {}\n", key, value.dump());
  }
  text += "Layers\n    #  type     heads x dim  KV  K/V             FFN\n";
  for (const Json& layer : json["layers"]) text += LayerText(layer);
  text += "Tensors\n";
  for (const Json& tensor : json["tensors"]) {
    text += fmt::format("  {} {} {} {}{}\n", tensor["name"].get<std::string>(), tensor["dtype"].get<std::string>(),
                        tensor["shape"].dump(), Bytes(tensor["bytes"]), tensor["used"].get<bool>() ? "" : ", ignored");
  }
  const Json& totals = json["totals"];
  text +=
      fmt::format("  used: {} tensors, {}; ignored: {} tensors, {}; files: {}\n",
                  totals["used"]["tensors"].get<int64_t>(), Bytes(totals["used"]["bytes"]),
                  totals["ignored"]["tensors"].get<int64_t>(), Bytes(totals["ignored"]["bytes"]), json["files"].size());
  return text + MemoryText(json["memory"]);
}

}  // namespace

void AddInspectCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("inspect", "Shows config, tensors, sizes and what would be loaded");
  AddModelOptions(command, o->model, line.environment);
  command.add_flag("--json", o->json, "Print one JSON object");
  command.footer("Example:\n  lapidary inspect -m DIR --ctx 8192");
  command.callback([&line, o] {
    line.run = [o] {
      const Json json = Inspect(*o);
      Print(o->json ? ToText(json) : InspectText(json));
    };
  });
}

}  // namespace lapidary
