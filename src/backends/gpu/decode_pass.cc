#include "backends/gpu/decode_pass.h"

#include <algorithm>
#include <cmath>

#include "backends/gpu/places.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/kv_append.h"

namespace lapidary::gpu {

bool DecodePass::Takes(const ModelPlan& plan) {
  return plan.hidden() <= kFewResidualWidth &&
         std::ranges::none_of(plan.layers, [](const LayerPlan& layer) { return layer.has_experts; });
}

DecodePass::DecodePass(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage,
                       const DeviceInfo& device, int64_t max_positions)
    : plan_(plan), weights_(weights), storage_(storage), rotation_(plan) {
  const int64_t hidden = plan.hidden();
  int64_t branch_parts = 1;
  size_t workspace = 0;
  const auto reserve = [](Scratch<float>& buffer, int64_t width) { buffer.Reserve(kFewRows * width); };
  for (const LayerPlan& layer : plan.layers) {
    const PlacedLayer& w = weights.layers[static_cast<size_t>(layer.index)];
    const int64_t heads_width = int64_t{layer.heads} * layer.head_dim;
    reserve(qkv_, w.qkv.rows);
    reserve(attention_, heads_width);
    reserve(gated_, layer.ffn_width);
    branch_parts = std::max<int64_t>({branch_parts, MatmulFewSplits(heads_width), MatmulFewSplits(layer.ffn_width)});
    AttentionDecodePlan& kind = attention_plans_[static_cast<size_t>(layer.attention)];
    if (kind.max_rows > 0) continue;
    kind = PlanAttentionDecode(
        {layer.heads, layer.kv_heads, layer.head_dim, static_cast<int32_t>(layer.window), storage.is_bf16()}, kFewRows,
        max_positions, device);
    workspace = std::max(workspace, kind.workspace_bytes);
  }
  rotation_.Reserve(kFewRows);
  reserve(embedding_, hidden);
  for (Scratch<float>& stream : streams_) reserve(stream, hidden);
  reserve(branch_, branch_parts * hidden);
  reserve(context_, plan.per_layer_width() * plan.config.num_hidden_layers);
  reserve(per_layer_, plan.per_layer_width() * plan.config.num_hidden_layers);
  reserve(per_layer_gate_, plan.per_layer_width());
  reserve(logits_, plan.vocab());
  cta_best_.Reserve(int64_t{MatmulFewCtas()} * kFewRows);
  results_.Reserve(kResults);
  attention_workspace_.Reserve(static_cast<int64_t>(workspace));
  Fill(attention_workspace_.data(), 0, workspace, nullptr);
  Synchronize(nullptr);
}

MatmulFewArgs DecodePass::ArgsOf(int64_t k) const {
  MatmulFewArgs args;
  args.rows = rows_;
  args.k = static_cast<int32_t>(k);
  args.eps = static_cast<float>(plan_.config.rms_norm_eps);
  args.bad_place = results_.data() + kFewRows;
  return args;
}

void DecodePass::JoinBranch(MatmulFewArgs& args, const float* pre_norm, int place) {
  float* next = stream_ == streams_[0].data() ? streams_[1].data() : streams_[0].data();
  args.x = branch_state_.x;
  args.x_parts = branch_state_.parts;
  args.post_norm = branch_state_.norm;
  args.scale = branch_state_.scale;
  args.hidden = stream_;
  args.hidden_out = next;
  args.pre_norm = pre_norm;
  args.place = place;
  stream_ = next;
  branch_state_ = {};
}

// Source of the order of operations: transformers 5.17, models/gemma4/modeling_gemma4.py, Gemma4TextModel.forward.
void DecodePass::Launch(const StepInput& input, int rows, gpuStream stream) {
  rows_ = rows;
  Fill(results_.data(), 0, kResults * sizeof(int32_t), stream);
  rotation_.Launch(input.positions(), kFewRows, stream);
  Embed(input, stream);
  for (const LayerPlan& layer : plan_.layers)
    Layer(input, layer, weights_.layers[static_cast<size_t>(layer.index)], stream);
  Head(stream);
}

void DecodePass::Embed(const StepInput& input, gpuStream stream) {
  const int hidden = static_cast<int>(plan_.hidden()), layers = plan_.config.num_hidden_layers,
            width = static_cast<int>(plan_.per_layer_width());
  const RowCount rows{kFewRows, input.count()};
  EmbedRows(stream, rows, hidden, input.ids(), weights_.embed_tokens.data, std::sqrt(static_cast<float>(hidden)),
            {embedding_.data()});
  stream_ = embedding_.data();
  branch_state_ = {};
  if (width == 0) return;
  MatmulFewArgs args = ArgsOf(hidden);
  args.x = embedding_.data();
  args.w = {weights_.per_layer_model_projection.data, layers * width};
  args.y = context_.data();
  MultiplyFew("per_layer_model_projection", stream, args);
  PerLayerInputsTask task;
  task.context = {context_.data(), int64_t{layers} * width};
  task.context_scale = 1.0f / std::sqrt(static_cast<float>(hidden));
  task.weight = weights_.per_layer_projection_norm;
  task.eps = static_cast<float>(plan_.config.rms_norm_eps);
  task.ids = input.ids();
  task.table = weights_.embed_tokens_per_layer.data;
  task.table_stride = int64_t{layers} * width;
  task.token_scale = std::sqrt(static_cast<float>(width));
  task.layers = layers;
  task.width = width;
  PerLayerInputs(stream, rows, task, per_layer_.data());
}

void DecodePass::Layer(const StepInput& input, const LayerPlan& plan, const PlacedLayer& w, gpuStream stream) {
  Attention(input, plan, w, stream);
  FeedForward(plan, w, stream);
  if (plan_.per_layer_width() > 0) PerLayerBranch(plan, w, stream);
  branch_state_.scale = w.layer_scalar;
}

void DecodePass::Attention(const StepInput& input, const LayerPlan& plan, const PlacedLayer& w, gpuStream stream) {
  const auto group = static_cast<size_t>(plan.attention);
  const int64_t q_width = int64_t{plan.heads} * plan.head_dim, kv_width = int64_t{plan.kv_heads} * plan.head_dim;
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  MatmulFewArgs args = ArgsOf(plan_.hidden());
  JoinBranch(args, w.input_layernorm, plan.index == 0 ? kPlaceEmbedding : PlaceOfLayer(plan.index - 1));
  args.w = {w.qkv.data, w.qkv.rows};
  args.y = qkv_.data();
  JoinAndMultiplyFew("qkv_proj", stream, FewOutput::kStore, args);

  KvCacheView cache = input.Tables(group);
  cache.data = storage_.slot(group, plan.kv_slot);
  cache.block_bytes = storage_.block_bytes(group);
  cache.is_bf16 = storage_.is_bf16();
  const int64_t stride = w.qkv.rows;
  if (plan.writes_kv) {
    KvAppendArgs append;
    append.k = {qkv_.data() + q_width, stride, nullptr};
    append.v = plan.v_is_k ? append.k : RowInput{qkv_.data() + q_width + kv_width, stride, nullptr};
    append.k_weight = w.k_norm;
    append.eps = eps;
    append.kv_heads = plan.kv_heads;
    append.head_dim = plan.head_dim;
    append.rope = rotation_.Table(plan.attention);
    append.rows = input.rows();
    append.cache = cache;
    KvAppend(stream, append, kFewRows, true);
  }
  AttentionDecodeArgs attend;
  attend.q = {qkv_.data(), stride, nullptr};
  attend.q_weight = w.q_norm;
  attend.eps = eps;
  attend.rope = rotation_.Table(plan.attention);
  attend.rows = input.rows();
  attend.cache = cache;
  attend.out.values = attention_.data();
  attend.workspace = attention_workspace_.data();
  AttentionDecode(stream, attention_plans_[group], attend, true);

  MakeBranch("o_proj", attention_.data(), w.o_proj, w.post_attention_layernorm, stream);
}

void DecodePass::MakeBranch(const char* what, const float* x, const DeviceMatrix& w, const float* norm,
                            gpuStream stream) {
  MatmulFewArgs args = ArgsOf(w.cols);
  args.x = x;
  args.w = {w.data, w.rows};
  args.k_splits = MatmulFewSplits(w.cols);
  args.y = branch_.data();
  MultiplyFew(what, stream, args);
  branch_state_ = {branch_.data(), args.k_splits, norm, 1.0f};
}

void DecodePass::FeedForward(const LayerPlan& plan, const PlacedLayer& w, gpuStream stream) {
  MatmulFewArgs args = ArgsOf(plan_.hidden());
  JoinBranch(args, w.pre_feedforward_layernorm, PlaceOfLayer(plan.index));
  args.w = {w.gate_up.data, w.gate_up.rows};
  args.y = gated_.data();
  JoinAndMultiplyFew("gate_up_proj", stream, FewOutput::kGated, args);

  MakeBranch("down_proj", gated_.data(), w.down_proj, w.post_feedforward_layernorm, stream);
}

void DecodePass::PerLayerBranch(const LayerPlan& plan, const PlacedLayer& w, gpuStream stream) {
  const int64_t width = plan_.per_layer_width();
  MatmulFewArgs args = ArgsOf(plan_.hidden());
  JoinBranch(args, nullptr, PlaceOfLayer(plan.index));
  args.w = {w.per_layer_input_gate.data, w.per_layer_input_gate.rows};
  args.y = per_layer_gate_.data();
  JoinAndMultiplyFew("per_layer_input_gate", stream, FewOutput::kStore, args);

  args = ArgsOf(width);
  args.x = per_layer_gate_.data();
  args.per_layer = per_layer_.data() + plan.index * width;
  args.per_layer_stride = width * plan_.config.num_hidden_layers;
  args.w = {w.per_layer_projection.data, w.per_layer_projection.rows};
  args.y = branch_.data();
  MultiplyFewPerLayer("per_layer_projection", stream, args);
  branch_state_ = {branch_.data(), 1, w.post_per_layer_input_norm, 1.0f};
}

void DecodePass::Head(gpuStream stream) {
  MatmulFewArgs args = ArgsOf(plan_.hidden());
  JoinBranch(args, weights_.norm, PlaceOfLayer(plan_.config.num_hidden_layers - 1));
  args.w = {weights_.embed_tokens.data, weights_.embed_tokens.rows};
  args.softcap = static_cast<float>(plan_.config.final_logit_softcapping.value_or(0.0));
  args.y = logits_.data();
  args.best = cta_best_.data();
  JoinAndMultiplyFew("embed_tokens", stream, FewOutput::kHead, args);
  BestOfCtas(stream, rows_, cta_best_.data(), results_.data());
}

}  // namespace lapidary::gpu
