#include "backends/gpu/decode_pass.h"

#include <algorithm>
#include <cmath>

#include "backends/gpu/decode_stages.h"
#include "backends/gpu/places.h"
#include "kernels/gpu/elementwise.h"

namespace lapidary::gpu {
namespace {

// Segments of the context, at most: enough to have the whole device read it.
constexpr int kMostSegments = 128;

int TilesOf(const LayerPlan& layer) {
  return layer.kv_heads * ((layer.heads / layer.kv_heads + kDecodeTileHeads - 1) / kDecodeTileHeads);
}

int RoundUp4(int64_t count) { return static_cast<int>((count + 3) / 4 * 4); }

DecodeShape ShapeOf(const LayerPlan& layer) {
  const int64_t kv_vectors = layer.writes_kv ? layer.kv_heads * (layer.v_is_k ? 1 : 2) : 0;
  return {static_cast<int32_t>(layer.attention), static_cast<int32_t>((layer.heads + kv_vectors) * layer.head_dim),
          static_cast<int32_t>(layer.ffn_width)};
}

std::vector<DecodeShape> ShapesOf(const ModelPlan& plan) {
  std::vector<DecodeShape> shapes;
  for (const LayerPlan& layer : plan.layers) {
    if (std::ranges::find(shapes, ShapeOf(layer)) == shapes.end()) shapes.push_back(ShapeOf(layer));
  }
  return shapes;
}

// The cells of a layer's row, one buffer after the other.
DecodeCells CellsOf(const ModelPlan& plan, const LayerPlan& layer, int max_segments) {
  const int64_t heads_width = int64_t{layer.heads} * layer.head_dim, hidden = plan.hidden();
  DecodeCells cells;
  const auto take = [&](int64_t count) {
    const int begin = cells.row_cells;
    cells.row_cells += RoundUp4(count);
    return begin;
  };
  const auto out = [&](DecodeMatrix matrix, int64_t count) { cells.outputs[static_cast<int>(matrix)] = take(count); };
  const auto branch = [&](DecodeMatrix matrix, int64_t k) {
    const int parts = DecodeStepParts(k);
    out(matrix, parts * hidden);
    if (parts > 1) cells.sums[static_cast<int>(matrix)] = take(hidden);
  };
  out(DecodeMatrix::kQkv, ShapeOf(layer).qkv_rows);
  cells.attention = take(heads_width);
  branch(DecodeMatrix::kO, heads_width);
  out(DecodeMatrix::kGateUp, layer.ffn_width);
  branch(DecodeMatrix::kDown, layer.ffn_width);
  out(DecodeMatrix::kPerLayerGate, plan.per_layer_width());
  out(DecodeMatrix::kPerLayerProjection, hidden);
  cells.partials = take(int64_t{max_segments} * TilesOf(layer) * kDecodeTileHeads * (layer.head_dim + 2));
  return cells;
}

}  // namespace

bool DecodePass::Takes(const ModelPlan& plan) {
  return plan.hidden() <= kDecodeStepWidth && ShapesOf(plan).size() <= kDecodeMostShapes &&
         std::ranges::none_of(plan.layers,
                              [](const LayerPlan& layer) { return layer.has_experts || layer.rotary_pairs % 4 != 0; });
}

DecodePass::DecodePass(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage,
                       const DeviceInfo& device, int64_t max_positions)
    : plan_(plan), weights_(weights), storage_(storage), multiprocessors_(device.multiprocessors), rotation_(plan) {
  rotation_.Reserve(kFewRows);
  const int64_t per_layer = plan.per_layer_width() * plan.config.num_hidden_layers;
  embedding_.Reserve(kFewRows * plan.hidden());
  context_.Reserve(kFewRows * per_layer);
  per_layer_.Reserve(kFewRows * per_layer);
  logits_.Reserve(kFewRows * plan.vocab());
  best_.Reserve(int64_t{MatmulFewCtas()} * kFewRows);
  results_.Reserve(kResults);
  state_.Reserve(1);
  Fill(state_.data(), 0, sizeof(DecodeStepState), nullptr);

  args_.layers = plan.config.num_hidden_layers;
  args_.hidden = static_cast<int32_t>(plan.hidden());
  args_.per_layer_width = static_cast<int32_t>(plan.per_layer_width());
  args_.vocab = static_cast<int32_t>(plan.vocab());
  args_.eps = static_cast<float>(plan.config.rms_norm_eps);
  args_.softcap = static_cast<float>(plan.config.final_logit_softcapping.value_or(0.0));
  args_.is_bf16 = storage.is_bf16();
  args_.embedding = embedding_.data();
  args_.per_layer = per_layer_.data();
  args_.final_norm = weights.norm;
  args_.head = weights.embed_tokens.data;
  args_.state = state_.data();
  args_.logits = logits_.data();
  args_.best = best_.data();
  args_.bad_place = results_.data() + kBadPlace;
  args_.stuck = reinterpret_cast<uint32_t*>(results_.data() + kStuck);
  PlaceCells(max_positions);
  PlaceLayers();
  Synchronize(nullptr);
}

void DecodePass::PlaceCells(int64_t max_positions) {
  for (const LayerPlan& layer : plan_.layers) {
    DecodeAttention& kind = args_.kinds[static_cast<size_t>(layer.attention)];
    const int last = static_cast<int>(std::min<int64_t>(max_positions, kKvBlockTokens * int64_t{1 << 20})) - 1;
    kind.heads = layer.heads;
    kind.kv_heads = layer.kv_heads;
    kind.head_dim = layer.head_dim;
    kind.group = layer.heads / layer.kv_heads;
    kind.tiles = (kind.group + kDecodeTileHeads - 1) / kDecodeTileHeads;
    kind.window = static_cast<int32_t>(layer.window);
    kind.max_segments = DecodeSegments(last, kind.window, std::min(multiprocessors_, kMostSegments));
    DecodeCells cells = CellsOf(plan_, layer, kind.max_segments);
    cells.layer = args_.set_cells;
    args_.set_cells += int64_t{kFewRows} * cells.row_cells;
    layer_cells_.push_back(cells);
  }
  cells_.Reserve(2 * args_.set_cells);
  Fill(cells_.data(), 0xff, static_cast<size_t>(2 * args_.set_cells) * sizeof(float), nullptr);
  args_.cells = cells_.data();
}

void DecodePass::PlaceLayers() {
  const std::vector<DecodeShape> shapes = ShapesOf(plan_);
  std::ranges::copy(shapes, args_.shape);
  args_.shapes = static_cast<int32_t>(shapes.size());
  std::vector<DecodeLayer> layers;
  for (const LayerPlan& plan : plan_.layers) {
    const PlacedLayer& w = weights_.layers[static_cast<size_t>(plan.index)];
    DecodeLayer& layer = layers.emplace_back();
    const auto set = [&](DecodeMatrix matrix, const DeviceMatrix& weights, const float* norm) {
      layer.weights[static_cast<int>(matrix)] = weights.data;
      layer.norms[static_cast<int>(matrix)] = norm;
    };
    set(DecodeMatrix::kQkv, w.qkv, w.input_layernorm);
    set(DecodeMatrix::kO, w.o_proj, w.post_attention_layernorm);
    set(DecodeMatrix::kGateUp, w.gate_up, w.pre_feedforward_layernorm);
    set(DecodeMatrix::kDown, w.down_proj, w.post_feedforward_layernorm);
    set(DecodeMatrix::kPerLayerGate, w.per_layer_input_gate, nullptr);
    set(DecodeMatrix::kPerLayerProjection, w.per_layer_projection, w.post_per_layer_input_norm);
    layer.q_norm = w.q_norm;
    layer.k_norm = w.k_norm;
    layer.kv = storage_.slot(static_cast<size_t>(plan.attention), plan.kv_slot);
    layer.cells = layer_cells_[static_cast<size_t>(plan.index)];
    layer.scale = w.layer_scalar;
    layer.kind = static_cast<int32_t>(plan.attention);
    layer.shape = static_cast<int32_t>(std::ranges::find(shapes, ShapeOf(plan)) - shapes.begin());
    layer.writes_kv = plan.writes_kv;
    layer.v_is_k = plan.v_is_k;
  }
  layers_.Reserve(static_cast<int64_t>(layers.size()));
  CopyToDevice(layers_.data(), layers.data(), layers.size() * sizeof(DecodeLayer), nullptr);
  Synchronize(nullptr);
  args_.layer = layers_.data();
}

void DecodePass::LaunchMarked(const StepInput& input, int rows, gpuStream stream) {
  marks_.Reserve(int64_t{MatmulFewCtas()} * (args_.layers + 1) * kDecodeMarks);
  Fill(marks_.data(), 0, static_cast<size_t>(marks_.size()) * sizeof(int64_t), stream);
  Launch(input, rows, marks_.data(), stream);
}

std::vector<KernelTime> DecodePass::Stages() const {
  std::vector<int64_t> marks(static_cast<size_t>(marks_.size()));
  CopyToHost(marks.data(), marks_.data(), marks.size() * sizeof(int64_t), nullptr);
  Synchronize(nullptr);
  return DecodeStages(marks, MatmulFewCtas(), args_.layers);
}

void DecodePass::Launch(const StepInput& input, int rows, int64_t* marks, gpuStream stream) {
  Fill(results_.data(), 0, kResults * sizeof(int32_t), stream);
  rotation_.Launch(input.positions(), kFewRows, stream);
  Embed(input, rows, stream);
  DecodeStepArgs args = args_;
  args.rows = rows;
  args.marks = marks;
  args.step = input.rows();
  for (const AttentionType type : {AttentionType::kSliding, AttentionType::kFull}) {
    const auto group = static_cast<size_t>(type);
    args.kinds[group].rope = rotation_.Table(type);
    args.kinds[group].cache = input.Tables(group);
    args.kinds[group].cache.block_bytes = storage_.block_bytes(group);
  }
  DecodeStep(stream, args);
  BestOfCtas(stream, rows, best_.data(), results_.data());
}

void DecodePass::Embed(const StepInput& input, int step_rows, gpuStream stream) {
  const int hidden = static_cast<int>(plan_.hidden()), layers = plan_.config.num_hidden_layers,
            width = static_cast<int>(plan_.per_layer_width());
  const RowCount rows{kFewRows, input.count()};
  EmbedRows(stream, rows, hidden, input.ids(), weights_.embed_tokens.data, std::sqrt(static_cast<float>(hidden)),
            {embedding_.data()});
  if (width == 0) return;
  MatmulFewArgs args;
  args.rows = step_rows;
  args.x = embedding_.data();
  args.k = hidden;
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

}  // namespace lapidary::gpu
