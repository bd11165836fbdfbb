#include "backends/gpu/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backends/gpu/places.h"
#include "base/error.h"
#include "kernels/gpu/kv_append.h"
#include "kernels/gpu/sampling.h"

namespace lapidary::gpu {
namespace {

// Rows whose logits are made at a time: 128 x 262,144 in three terms are 403 MB.
constexpr int64_t kLogitRows = Products::kMostCount;

DeviceMatrix RowsOf(const DeviceMatrix& w, int64_t begin, int64_t end) {
  return {w.data + begin * w.cols, static_cast<int32_t>(end - begin), w.cols};
}

RowInput ColumnsFrom(const RowInput& x, int64_t begin) {
  RowInput out = x;
  out.values += begin;
  if (out.rest != nullptr) out.rest += begin;
  return out;
}

}  // namespace

int64_t LongestRun(std::span<const int32_t> sequences) {
  int64_t longest = 0, run = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    run = i > 0 && sequences[i] == sequences[i - 1] ? run + 1 : 1;
    longest = std::max(longest, run);
  }
  return longest;
}

struct ForwardPass::Step {
  const StepInput& input;
  std::span<const int32_t> sequences;  // of the rows, on the host; empty where the step is recorded
  int64_t logit_rows;
  bool wants_best;
  const SampleInput* sampling;  // null: the best logit is chosen
  std::span<float> logits;      // where they go on the host; may be empty
  TapSink* taps;
  gpuStream stream;
  bool stops_early;  // some rows' logits are not wanted
};

ForwardPass::ForwardPass(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage,
                         const Setup& setup)
    : plan_(plan),
      weights_(weights),
      storage_(storage),
      device_(setup.device),
      max_positions_(setup.max_positions),
      terms_(setup.terms == ActivationTerms::kThree ? 3 : 1),
      decode_rows_(setup.decode_rows),
      products_(setup.terms, setup.device.multiprocessors, setup.decode_rows > 0),
      rotation_(plan) {
  if (decode_rows_ == 0) return;
  for (const LayerPlan& layer : plan.layers) {
    for (const bool few : {true, false}) DecodePlan(layer, few, nullptr);
  }
  Synchronize(nullptr);
}

void ForwardPass::Run(const StepBatch& batch, const StepInput& input, const StepOutput& output, TapSink* taps,
                      gpuStream stream) {
  const auto logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  const Step step{input,
                  batch.sequences,
                  logit_rows,
                  !output.best.empty(),
                  output.sampling,
                  output.logits,
                  taps,
                  stream,
                  batch.stop_early && batch.logit_rows.size() < batch.ids.size()};
  rows_ = {static_cast<int64_t>(batch.ids.size()), nullptr, input.ids(), input.rows(), batch.positions, false};
  rows_.is_decode = rows_.count <= kDecodeMaxRows && LongestRun(batch.sequences) <= kDecodeFewRows;
  Start(step);
  if (Layers(step)) Logits(step);
  std::vector<int32_t> results(static_cast<size_t>(kResultIds + (step.wants_best ? logit_rows : 0)));
  CopyToHost(results.data(), results_.data(), results.size() * sizeof(int32_t), stream);
  Synchronize(stream);
  CheckResults(results.data());
  if (step.wants_best) std::copy(results.begin() + kResultIds, results.end(), output.best.begin());
}

void ForwardPass::LaunchDecode(const StepInput& input, const SampleInput* sampling, int64_t rows, gpuStream stream) {
  const Step step{input, {}, rows, true, sampling, {}, nullptr, stream, false};
  rows_ = {rows, input.count(), input.ids(), input.rows(), {}, true};
  Start(step);
  Layers(step);
  Logits(step);
}

void ForwardPass::CheckResults(const int32_t* results) {
  uint64_t bad = 0;
  std::memcpy(&bad, results, sizeof(bad));
  if (bad == 0) return;
  Throw(ErrorKind::kDevice,
        NameOfPlace(static_cast<int>(WhereNonFinite(bad).stage)) +
            ": found a value that is not finite, wanted finite numbers; the weights may be damaged");
}

void ForwardPass::Start(const Step& step) {
  products_.ClearFlops();
  attention_flops_ = 0;
  for (AttentionKind& kind : kinds_) kind.tile_count = 0;
  SetRows(rows_.count);
  results_.Reserve(kResultIds + Room() + kFewRows);
  Fill(results_.data(), 0, sizeof(uint64_t), step.stream);
}

void ForwardPass::SetRows(int64_t rows) {
  rows_.count = rows;
  products_.SetRows(rows, Room());
}

// Source of the order of operations: transformers 5.17, models/gemma4/modeling_gemma4.py, Gemma4TextModel.forward.
// False where no row is left for logits.
bool ForwardPass::Layers(const Step& step) {
  const int layers = plan_.config.num_hidden_layers;
  Embed(step);
  ShowTap(step, Tap::kEmbedding, -1, a_.hidden.data(), plan_.hidden());
  rotation_.Reserve(Room());
  rotation_.Launch(rows_.view.positions, rows_.count, step.stream);
  PerLayerInputs(step, 0, step.stops_early ? plan_.last_kv_layer : layers);
  if (plan_.per_layer_width() > 0) {
    ShowTap(step, Tap::kPerLayerInputs, -1, a_.per_layer.data(),
            (per_layer_end_ - per_layer_begin_) * plan_.per_layer_width());
  }
  NormInput(step, weights_.layers.front());
  for (size_t i = 0; i < plan_.layers.size(); ++i) {
    if (!DecoderLayer(step, plan_.layers[i], weights_.layers[i])) return false;
    ShowTap(step, Tap::kLayer, static_cast<int>(i), a_.hidden.data(), plan_.hidden());
  }
  return true;
}

void ForwardPass::Embed(const Step& step) {
  const auto hidden = static_cast<int>(plan_.hidden());
  a_.hidden.Reserve(Room() * hidden);
  a_.embedding.Reserve(Room() * hidden);
  EmbedRows(step.stream, AllRows(), hidden, rows_.ids, weights_.embed_tokens.data,
            std::sqrt(static_cast<float>(hidden)), {a_.embedding.data(), nullptr, nullptr});
  CopyOnDevice(a_.hidden.data(), a_.embedding.data(), static_cast<size_t>(rows_.count * hidden) * sizeof(float),
               step.stream);
  CheckFinite(step.stream, AllRows(), hidden, a_.hidden.data(), {bad(), kPlaceEmbedding});
}

// The per-layer inputs of layers [layer_begin, layer_end): projected embedding and token table, averaged.
void ForwardPass::PerLayerInputs(const Step& step, int layer_begin, int layer_end) {
  const int64_t width = plan_.per_layer_width(), all = width * plan_.config.num_hidden_layers;
  const auto hidden = static_cast<int>(plan_.hidden());
  per_layer_begin_ = layer_begin;
  per_layer_end_ = layer_end;
  if (width == 0 || layer_begin == layer_end) return;
  const RowInput embedding{a_.embedding.data(), hidden, nullptr};
  ConvertRows(step.stream, AllRows(), hidden, embedding, products_.Input(hidden));
  PerLayerInputsTask task;
  task.context = products_.Multiply("per_layer_model_projection",
                                    RowsOf(weights_.per_layer_model_projection, layer_begin * width, layer_end * width),
                                    a_.context, step.stream);
  task.context_scale = 1.0f / std::sqrt(static_cast<float>(hidden));
  task.weight = weights_.per_layer_projection_norm;
  task.eps = static_cast<float>(plan_.config.rms_norm_eps);
  task.ids = rows_.ids;
  task.table = weights_.embed_tokens_per_layer.data + layer_begin * width;
  task.table_stride = all;
  task.token_scale = std::sqrt(static_cast<float>(width));
  task.layers = layer_end - layer_begin;
  task.width = static_cast<int>(width);
  a_.per_layer.Reserve(Room() * task.layers * width);
  lapidary::gpu::PerLayerInputs(step.stream, AllRows(), task, a_.per_layer.data());
}

// The input of the layer's first products, from the residual stream.
void ForwardPass::NormInput(const Step& step, const PlacedLayer& w) {
  const auto hidden = static_cast<int>(plan_.hidden());
  RmsNorm(step.stream, AllRows(), hidden, {a_.hidden.data(), hidden, nullptr}, w.input_layernorm,
          static_cast<float>(plan_.config.rms_norm_eps), products_.Input(hidden));
}

bool ForwardPass::DecoderLayer(const Step& step, const LayerPlan& plan, const PlacedLayer& w) {
  const int64_t q_width = int64_t{plan.heads} * plan.head_dim;
  if (step.stops_early && plan.index == plan_.last_kv_layer) {
    const DeviceMatrix kv = RowsOf(w.qkv, q_width, w.qkv.rows);
    AppendKv(step, plan, w, products_.Multiply("k_proj, v_proj", kv, a_.qkv, step.stream));
    KeepRows(step);
    if (rows_.count == 0) return false;
    PerLayerInputs(step, plan.index, plan_.config.num_hidden_layers);
    NormInput(step, w);
    const DeviceMatrix q_proj = RowsOf(w.qkv, 0, q_width);
    Attend(step, plan, w, products_.Multiply("q_proj", q_proj, a_.qkv, step.stream));
  } else {
    const RowInput qkv = products_.Multiply("qkv_proj", w.qkv, a_.qkv, step.stream);
    if (plan.writes_kv) AppendKv(step, plan, w, ColumnsFrom(qkv, q_width));
    Attend(step, plan, w, qkv);
  }
  FeedForward(step, plan, w);
  if (plan_.per_layer_width() > 0) PerLayerBranch(step, plan, w);
  return true;
}

// How the last branch of a layer joins: the next layer's input is made on the way.
void ForwardPass::EndLayer(const LayerPlan& plan, const PlacedLayer& w, AddRmsNormTask& join) {
  join.scale = w.layer_scalar;
  const auto next = static_cast<size_t>(plan.index) + 1;
  if (next == weights_.layers.size()) return;
  join.next = NextRow::kNormed;
  join.next_weight = weights_.layers[next].input_layernorm;
  join.out = products_.Input(plan_.hidden());
}

KvCacheView ForwardPass::CacheOf(const Step& step, const LayerPlan& plan) const {
  const auto group = static_cast<size_t>(plan.attention);
  KvCacheView cache = step.input.Tables(group);
  cache.data = storage_.slot(group, plan.kv_slot);
  cache.block_bytes = storage_.block_bytes(group);
  cache.is_bf16 = storage_.is_bf16();
  return cache;
}

// k: the rows' keys, and behind them their values unless those are the keys.
void ForwardPass::AppendKv(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& k) {
  KvAppendArgs args;
  args.k = k;
  args.v = plan.v_is_k ? k : ColumnsFrom(k, int64_t{plan.kv_heads} * plan.head_dim);
  args.k_weight = w.k_norm;
  args.eps = static_cast<float>(plan_.config.rms_norm_eps);
  args.kv_heads = plan.kv_heads;
  args.head_dim = plan.head_dim;
  args.rope = rotation_.Table(plan.attention);
  args.rows = rows_.view;
  args.cache = CacheOf(step, plan);
  KvAppend(step.stream, args, static_cast<int>(rows_.count), ReadsAhead());
}

void ForwardPass::Attend(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& q) {
  const int64_t q_width = int64_t{plan.heads} * plan.head_dim;
  const auto hidden = static_cast<int>(plan_.hidden());
  if (rows_.is_decode) {
    DecodeAttention(step, plan, w, q);
  } else {
    PrefillAttention(step, plan, w, q);
  }
  for (const int32_t position : rows_.positions) {
    const int64_t seen = plan.window == 0 ? position + 1 : std::min<int64_t>(position + 1, plan.window);
    attention_flops_ += 4.0 * static_cast<double>(seen) * static_cast<double>(q_width);
  }
  if (step.taps != nullptr) {
    const float* shown = products_.is_few() ? products_.Input(q_width).values : a_.attention.data();
    ShowTap(step, Tap::kAttention, plan.index, shown, q_width);
  }
  AddRmsNormTask join;
  join.branch = products_.Multiply("o_proj", w.o_proj, a_.branch, step.stream);
  join.weight = w.post_attention_layernorm;
  join.eps = static_cast<float>(plan_.config.rms_norm_eps);
  join.hidden = a_.hidden.data();
  join.next = NextRow::kNormed;
  join.next_weight = w.pre_feedforward_layernorm;
  join.out = products_.Input(hidden);
  join.check = {bad(), static_cast<uint32_t>(PlaceOfLayer(plan.index))};
  AddRmsNorm(step.stream, AllRows(), hidden, join);
}

const AttentionDecodePlan& ForwardPass::DecodePlan(const LayerPlan& plan, bool few, gpuStream stream) {
  std::optional<AttentionDecodePlan>& cut = kinds_[static_cast<size_t>(plan.attention)].decode[few ? 0 : 1];
  if (!cut) {
    const auto most = decode_rows_ > 0 ? static_cast<int>(decode_rows_) : kDecodeMaxRows;
    cut = PlanAttentionDecode(
        {plan.heads, plan.kv_heads, plan.head_dim, static_cast<int32_t>(plan.window), storage_.is_bf16()},
        few ? kDecodeFewRows : most, max_positions_, device_);
    if (attention_workspace_.Reserve(static_cast<int64_t>(cut->workspace_bytes))) {
      Fill(attention_workspace_.data(), 0, cut->workspace_bytes, stream);
    }
  }
  return *cut;
}

// The product's input receives the result.
void ForwardPass::DecodeAttention(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& q) {
  const int64_t q_width = int64_t{plan.heads} * plan.head_dim;
  const AttentionDecodePlan& cut = DecodePlan(plan, rows_.count <= kDecodeFewRows, step.stream);
  AttentionDecodeArgs args;
  args.q = q;
  args.q_weight = w.q_norm;
  args.eps = static_cast<float>(plan_.config.rms_norm_eps);
  args.rope = rotation_.Table(plan.attention);
  args.rows = rows_.view;
  args.cache = CacheOf(step, plan);
  args.out = AttentionOutput(step, q_width);
  args.workspace = attention_workspace_.data();
  AttentionDecode(step.stream, cut, args, ReadsAhead());
}

// The next product's input, and memory of its own where a tap wants to see it.
RowOutput ForwardPass::AttentionOutput(const Step& step, int64_t width) {
  RowOutput out = products_.Input(width);
  if (step.taps != nullptr && out.values == nullptr) {
    a_.attention.Reserve(Room() * width);
    out.values = a_.attention.data();
  }
  return out;
}

void ForwardPass::PrefillAttention(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& q) {
  const int64_t q_width = int64_t{plan.heads} * plan.head_dim;
  AttentionKind& kind = kinds_[static_cast<size_t>(plan.attention)];
  const PrefillShape shape{plan.heads, plan.kv_heads, plan.head_dim, plan.window, storage_.is_bf16(), terms_};
  if (!kind.prefill) kind.prefill = ChoosePrefillTiling(shape, device_.shared_bytes_per_block);
  if (kind.tile_count == 0) {
    const std::vector<QueryTile> tiles = CutIntoTiles(step.sequences, kind.prefill->rows);
    kind.tile_count = static_cast<int>(tiles.size());
    kind.tiles.Reserve(kind.tile_count);
    CopyToDevice(kind.tiles.data(), tiles.data(), tiles.size() * sizeof(QueryTile), step.stream);
    Synchronize(step.stream);
  }
  const RowOutput q_terms = TermsIn(a_.q_heads, terms_, q_width);
  const RopeTableView table = rotation_.Table(plan.attention);
  AttentionPrefillArgs args;
  args.shape = shape;
  args.tiling = *kind.prefill;
  args.tiles = kind.tiles.data();
  args.tile_count = kind.tile_count;
  args.positions = rows_.view.positions;
  args.q = {q_terms.hi, q_terms.lo, q_terms.third};
  args.cache = CacheOf(step, plan);
  args.out = AttentionOutput(step, q_width);
  NormRotateHeads(step.stream, AllRows(), {plan.heads, plan.head_dim}, q, w.q_norm,
                  static_cast<float>(plan_.config.rms_norm_eps), {table.cos, table.sin, table.pairs}, q_terms);
  AttentionPrefill(step.stream, args);
}

RowOutput ForwardPass::TermsIn(Scratch<uint16_t>& buffer, int terms, int64_t width) const {
  const int64_t size = rows_.count * width;
  buffer.Reserve(terms * Room() * width);
  if (terms == 1) return {nullptr, buffer.data()};
  return {nullptr, buffer.data(), buffer.data() + size, buffer.data() + 2 * size};
}

void ForwardPass::FeedForward(const Step& step, const LayerPlan& plan, const PlacedLayer& w) {
  const auto hidden = static_cast<int>(plan_.hidden());
  products_.MultiplyGated("gate_proj, up_proj", w.gate_up, AllRows(), a_.gate_up, step.stream);
  AddRmsNormTask join;
  join.branch = products_.Multiply("down_proj", w.down_proj, a_.branch, step.stream);
  if (plan.has_experts) join.branch = AddExperts(step, w, join.branch);
  join.weight = w.post_feedforward_layernorm;
  join.eps = static_cast<float>(plan_.config.rms_norm_eps);
  join.hidden = a_.hidden.data();
  join.check = {bad(), static_cast<uint32_t>(PlaceOfLayer(plan.index))};
  if (plan_.per_layer_width() > 0) {
    join.next = NextRow::kHidden;
    join.out = products_.Input(hidden);
  } else {
    EndLayer(plan, w, join);
  }
  AddRmsNorm(step.stream, AllRows(), hidden, join);
}

RowInput ForwardPass::AddExperts(const Step& step, const PlacedLayer& w, const RowInput& branch) {
  const auto hidden = static_cast<int>(plan_.hidden());
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  const RowInput stream{a_.hidden.data(), hidden, nullptr};
  if (expert_rows_ < Room()) {
    expert_rows_ = Room();
    expert_workspace_.reset();
    expert_workspace_.emplace(
        ExpertShape{plan_.config.num_experts, plan_.config.top_k_experts, hidden, w.experts_down.cols},
        static_cast<int32_t>(expert_rows_));
  }
  for (Scratch<float>* buffer : {&a_.expert_branch, &a_.ffn_branch}) buffer->Reserve(Room() * hidden);
  RmsNorm(step.stream, AllRows(), hidden, branch, w.post_feedforward_layernorm_1, eps,
          {a_.ffn_branch.data(), nullptr, nullptr});
  RmsNorm(step.stream, AllRows(), hidden, stream, w.router_scale, eps, products_.Input(hidden));
  RouteExperts(step.stream, AllRows(), products_.Multiply("router.proj", w.router_proj, a_.router, step.stream),
               w.router_per_expert_scale, *expert_workspace_);
  const RowOutput x = TermsIn(a_.expert_input, products_.is_few() ? 3 : terms_, hidden);
  RmsNorm(step.stream, AllRows(), hidden, stream, w.pre_feedforward_layernorm_2, eps, x);
  RunExperts(step.stream, AllRows(), {x.hi, x.lo, x.third}, {w.experts_gate_up.data, w.experts_down.data},
             *expert_workspace_, a_.expert_branch.data());
  AddRmsNormTask join;
  join.branch = {a_.expert_branch.data(), hidden, nullptr};
  join.weight = w.post_feedforward_layernorm_2;
  join.eps = eps;
  join.hidden = a_.ffn_branch.data();
  AddRmsNorm(step.stream, AllRows(), hidden, join);
  return {a_.ffn_branch.data(), hidden, nullptr};
}

void ForwardPass::PerLayerBranch(const Step& step, const LayerPlan& plan, const PlacedLayer& w) {
  const int64_t width = plan_.per_layer_width(), stride = (per_layer_end_ - per_layer_begin_) * width;
  const RowInput gate =
      products_.Multiply("per_layer_input_gate", w.per_layer_input_gate, a_.per_layer_gate, step.stream);
  const RowInput inputs{a_.per_layer.data() + (plan.index - per_layer_begin_) * width, stride, nullptr};
  GeluMul(step.stream, AllRows(), static_cast<int>(width), gate, inputs, products_.Input(width));
  AddRmsNormTask join;
  join.branch = products_.Multiply("per_layer_projection", w.per_layer_projection, a_.branch, step.stream);
  join.weight = w.post_per_layer_input_norm;
  join.eps = static_cast<float>(plan_.config.rms_norm_eps);
  EndLayer(plan, w, join);
  join.hidden = a_.hidden.data();
  join.check = {bad(), static_cast<uint32_t>(PlaceOfLayer(plan.index))};
  AddRmsNorm(step.stream, AllRows(), static_cast<int>(plan_.hidden()), join);
}

void ForwardPass::KeepRows(const Step& step) {
  const auto hidden = static_cast<int>(plan_.hidden());
  SetRows(step.logit_rows);
  if (rows_.count == 0) return;
  const auto keep = [&](Scratch<float>& x) {
    a_.kept.Reserve(Room() * hidden);
    GatherRows(step.stream, AllRows(), hidden, {x.data(), hidden, nullptr}, step.input.logit_rows(), a_.kept.data());
    CopyOnDevice(x.data(), a_.kept.data(), static_cast<size_t>(rows_.count * hidden) * sizeof(float), step.stream);
  };
  keep(a_.hidden);
  keep(a_.embedding);
  rows_.ids = step.input.kept_ids();
  rows_.view = step.input.kept_rows();
  rows_.positions = step.input.kept_positions();
  rows_.is_decode = rows_.count <= kDecodeMaxRows;
  rotation_.Launch(rows_.view.positions, rows_.count, step.stream);
}

void ForwardPass::Logits(const Step& step) {
  const auto hidden = static_cast<int>(plan_.hidden());
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  if (step.taps != nullptr) {
    a_.normed.Reserve(Room() * hidden);
    RmsNorm(step.stream, AllRows(), hidden, {a_.hidden.data(), hidden, nullptr}, weights_.norm, eps,
            {a_.normed.data(), nullptr, nullptr});
    ShowTap(step, Tap::kFinalNorm, -1, a_.normed.data(), hidden);
  }
  if (rows_.count > step.logit_rows) KeepRows(step);
  const auto vocab = static_cast<size_t>(plan_.vocab());
  for (int64_t begin = 0; begin < rows_.count; begin += kLogitRows) {
    const int64_t count = std::min(kLogitRows, rows_.count - begin);
    const int32_t* live = rows_.live == nullptr ? products_.Count(count) : step.input.piece_count(begin / kLogitRows);
    LogitsOfPiece(step, begin, {static_cast<int32_t>(count), live});
    if (step.logits.empty()) continue;
    CopyToHost(step.logits.data() + static_cast<size_t>(begin) * vocab, a_.logits.data(),
               static_cast<size_t>(count) * vocab * sizeof(float), step.stream);
  }
}

void ForwardPass::LogitsOfPiece(const Step& step, int64_t begin, const RowCount& rows) {
  const auto hidden = static_cast<int>(plan_.hidden());
  const float softcap = static_cast<float>(plan_.config.final_logit_softcapping.value_or(0.0));
  int32_t* best = results_.data() + kResultIds + begin;
  products_.SetRows(rows.max, std::min(Room(), kLogitRows));
  RmsNorm(step.stream, rows, hidden, {a_.hidden.data() + begin * hidden, hidden, nullptr}, weights_.norm,
          static_cast<float>(plan_.config.rms_norm_eps), products_.Input(hidden));
  if (products_.is_few()) {
    products_.MultiplyHead(weights_.embed_tokens, softcap, a_.logits, best, step.stream);
    if (step.sampling != nullptr) ChooseIds(step, begin, rows);
    return;
  }
  products_.MultiplyLogits(weights_.embed_tokens, softcap, rows, a_.logits, step.stream);
  if (step.wants_best) ChooseIds(step, begin, rows);
}

void ForwardPass::ChooseIds(const Step& step, int64_t begin, const RowCount& rows) {
  const int64_t vocab = plan_.vocab(), most = std::min(Room(), kLogitRows);
  const LogitsView logits{a_.logits.data(), vocab, vocab, rows.count};
  int32_t* ids = results_.data() + kResultIds + begin;
  if (step.sampling == nullptr) {
    a_.maxima.Reserve(most * MaximaGroups(vocab));
    GroupMaxima(step.stream, logits, rows.max, a_.maxima.data(), true);
    Argmax(step.stream, logits, a_.maxima.data(), rows.max, ids, true);
    return;
  }
  a_.sampling.Reserve(static_cast<int64_t>(SampleWorkspaceBytes(vocab, static_cast<int>(most))));
  SampleArgs args = step.sampling->Args(begin);
  args.logits = logits;
  args.workspace = a_.sampling.data();
  args.ids = ids;
  Sample(step.stream, args, rows.max, true);
}

void ForwardPass::ShowTap(const Step& step, Tap tap, int layer, const float* data, int64_t width) {
  if (step.taps == nullptr) return;
  std::vector<float> values(static_cast<size_t>(rows_.count * width));
  CopyToHost(values.data(), data, values.size() * sizeof(float), step.stream);
  Synchronize(step.stream);
  step.taps->OnTap(tap, layer, values, rows_.count, width);
}

}  // namespace lapidary::gpu
