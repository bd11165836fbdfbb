#include "backends/cpu/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "backends/cpu/experts.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"

namespace lapidary::cpu {
namespace {

// Elements of a row-wise operation below which starting the other threads costs more than it saves.
constexpr size_t kParallelElements = 8192;

WeightMatrix RowsOf(const WeightMatrix& weight, int64_t begin, int64_t end) {
  const int64_t row_bytes = weight.cols * static_cast<int64_t>(SizeOf(weight.dtype));
  return {static_cast<const std::byte*>(weight.data) + begin * row_bytes, weight.dtype, end - begin, weight.cols};
}

}  // namespace

struct ForwardPass::Step {
  const StepBatch& batch;
  const KvStorage& storage;
  TapSink* taps;
  bool stops_early;  // some rows' logits are not wanted
};

ForwardPass::ForwardPass(const ModelPlan& plan, const PlacedWeights& weights, ThreadPool& pool)
    : plan_(plan), weights_(weights), pool_(pool) {
  for (const LayerPlan& layer : plan.layers) {
    std::vector<float>& table = inverse_frequencies_[static_cast<size_t>(layer.attention)];
    if (table.empty()) table = InverseFrequencies(layer);
  }
}

template <typename F>
void ForwardPass::ForRows(size_t width, const F& f) {
  const size_t rows = rows_.count();
  if (rows == 0) return;
  if (rows == 1 || rows * width < kParallelElements) return f(size_t{0}, rows);
  pool_.ParallelFor(rows, 1, [&](size_t begin, size_t end, int) { f(begin, end); });
}

void ForwardPass::Project(RowBuffer& x, std::span<const MatmulTarget> targets, size_t rows) {
  const int64_t cols = targets[0].weight.cols;
  Matmul(pool_, matmul_scratch_, x.data(), static_cast<int64_t>(rows), cols, targets);
  for (const MatmulTarget& target : targets) {
    flops_ += 2.0 * static_cast<double>(rows) * static_cast<double>(target.weight.rows) * static_cast<double>(cols);
  }
}

void ForwardPass::Project(RowBuffer& x, const WeightMatrix& weight, RowBuffer& out) {
  out.Resize(rows_.count(), static_cast<size_t>(weight.rows));
  const MatmulTarget target{weight, out.data(), weight.rows};
  Project(x, {&target, 1}, rows_.count());
}

void ForwardPass::CheckFinite(RowBuffer& x, const std::string& where) {
  for (size_t r = 0; r < rows_.count(); ++r) {
    if (AllFinite(x.row(r), x.width())) continue;
    Throw(ErrorKind::kDevice, where + ": found a value that is not finite at position " +
                                  std::to_string(rows_.positions[r]) +
                                  ", wanted finite numbers; the weights may be damaged");
  }
}

// Source of the order of operations: transformers 5.17, models/gemma4/modeling_gemma4.py, Gemma4TextModel.forward.
void ForwardPass::Run(const StepBatch& batch, const KvStorage& storage, std::span<float> logits, TapSink* taps) {
  const Step step{batch, storage, taps, batch.stop_early && batch.logit_rows.size() < batch.ids.size()};
  const int layers = plan_.config.num_hidden_layers;
  const auto tap = [&](Tap point, int layer, RowBuffer& x) {
    if (taps == nullptr) return;
    taps->OnTap(point, layer, {x.data(), rows_.count() * x.width()}, static_cast<int64_t>(rows_.count()),
                static_cast<int64_t>(x.width()));
  };
  Start(batch);
  Embed();
  tap(Tap::kEmbedding, -1, a_.hidden);
  RotationTables();
  PerLayerInputs(0, step.stops_early ? plan_.last_kv_layer : layers);
  if (plan_.per_layer_width() > 0) tap(Tap::kPerLayerInputs, -1, a_.per_layer);
  for (const LayerPlan& layer : plan_.layers) {
    if (!DecoderLayer(step, layer, weights_.layers[static_cast<size_t>(layer.index)])) return;
    CheckFinite(a_.hidden, "layer " + std::to_string(layer.index));
    tap(Tap::kLayer, layer.index, a_.hidden);
  }
  Logits(step, logits);
}

void ForwardPass::Start(const StepBatch& batch) {
  flops_ = 0;
  rows_.ids.assign(batch.ids.begin(), batch.ids.end());
  rows_.positions.assign(batch.positions.begin(), batch.positions.end());
  rows_.sequences.assign(batch.sequences.begin(), batch.sequences.end());
}

void ForwardPass::Embed() {
  const size_t hidden = static_cast<size_t>(plan_.hidden());
  const float scale = std::sqrt(static_cast<float>(hidden));
  a_.hidden.Resize(rows_.count(), hidden);
  a_.embedding.Resize(rows_.count(), hidden);
  ForRows(hidden, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      const WeightMatrix row = RowsOf(weights_.embed_tokens, rows_.ids[r], rows_.ids[r] + 1);
      LoadRow(row.data, row.dtype, hidden, scale, a_.hidden.row(r));
      std::copy_n(a_.hidden.row(r), hidden, a_.embedding.row(r));
    }
  });
  CheckFinite(a_.hidden, "embed_tokens");
}

// Angles are float32 products, as in the reference; their cosine and sine are rounded once, from double.
void ForwardPass::RotationTables() {
  for (size_t type = 0; type < kKvGroups; ++type) {
    const std::vector<float>& frequencies = inverse_frequencies_[type];
    a_.cos[type].Resize(rows_.count(), frequencies.size());
    a_.sin[type].Resize(rows_.count(), frequencies.size());
    ForRows(16 * frequencies.size(), [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        const float position = static_cast<float>(rows_.positions[r]);
        for (size_t j = 0; j < frequencies.size(); ++j) {
          const double angle = position * frequencies[j];
          a_.cos[type].row(r)[j] = static_cast<float>(std::cos(angle));
          a_.sin[type].row(r)[j] = static_cast<float>(std::sin(angle));
        }
      }
    });
  }
}

// The per-layer inputs of layers [layer_begin, layer_end): projected embedding and token table, averaged.
void ForwardPass::PerLayerInputs(int layer_begin, int layer_end) {
  const size_t p = static_cast<size_t>(plan_.per_layer_width());
  per_layer_begin_ = layer_begin;
  if (p == 0 || layer_begin == layer_end) return;
  const int64_t begin_row = layer_begin * static_cast<int64_t>(p), end_row = layer_end * static_cast<int64_t>(p);
  const size_t layers = static_cast<size_t>(layer_end - layer_begin), width = layers * p;
  Project(a_.embedding, RowsOf(weights_.per_layer_model_projection, begin_row, end_row), a_.per_layer);
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  const float context_scale = 1.0f / std::sqrt(static_cast<float>(plan_.hidden())),
              token_scale = std::sqrt(static_cast<float>(p));
  const WeightMatrix& table = weights_.embed_tokens_per_layer;
  const size_t element = SizeOf(table.dtype);
  ForRows(width, [&](size_t begin, size_t end) {
    std::vector<float> token(width);
    for (size_t r = begin; r < end; ++r) {
      float* context = a_.per_layer.row(r);
      Scale(context, width, context_scale);
      RmsNorm(context, weights_.per_layer_projection_norm.data(), eps, layers, p, context);
      const auto* row = static_cast<const std::byte*>(RowsOf(table, rows_.ids[r], rows_.ids[r] + 1).data);
      LoadRow(row + static_cast<size_t>(begin_row) * element, table.dtype, width, token_scale, token.data());
      for (size_t i = 0; i < width; ++i) context[i] = (context[i] + token[i]) * 0.70710678f;
    }
  });
}

bool ForwardPass::DecoderLayer(const Step& step, const LayerPlan& plan, const PlacedLayer& w) {
  const size_t hidden = static_cast<size_t>(plan_.hidden());
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  a_.normed.Resize(rows_.count(), hidden);
  ForRows(hidden, [&](size_t begin, size_t end) {
    RmsNorm(a_.hidden.row(begin), w.input_layernorm.data(), eps, end - begin, hidden, a_.normed.row(begin));
  });
  if (plan.writes_kv) WriteKv(step, plan, w);
  if (step.stops_early && plan.index == plan_.last_kv_layer) {
    KeepRows(step.batch.logit_rows);
    if (rows_.count() == 0) return false;
    PerLayerInputs(plan.index, plan_.config.num_hidden_layers);
  }
  SelfAttention(step, plan, w);
  FeedForward(plan, w);
  if (plan_.per_layer_width() > 0) PerLayerBranch(plan, w);
  ForRows(hidden,
          [&](size_t begin, size_t end) { Scale(a_.hidden.row(begin), (end - begin) * hidden, w.layer_scalar); });
  return true;
}

void ForwardPass::WriteKv(const Step& step, const LayerPlan& plan, const PlacedLayer& w) {
  const size_t d = static_cast<size_t>(plan.head_dim), kv_heads = static_cast<size_t>(plan.kv_heads),
               width = kv_heads * d;
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  const size_t type = static_cast<size_t>(plan.attention);
  a_.k.Resize(rows_.count(), width);
  a_.v.Resize(rows_.count(), width);
  const MatmulTarget targets[2] = {{w.k_proj, a_.k.data(), w.k_proj.rows}, {w.v_proj, a_.v.data(), w.v_proj.rows}};
  Project(a_.normed, {targets, plan.v_is_k ? size_t{1} : size_t{2}}, rows_.count());
  const AttentionShape shape{plan.heads, plan.kv_heads, plan.head_dim, plan.window};
  ForRows(width, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      RmsNorm(plan.v_is_k ? a_.k.row(r) : a_.v.row(r), nullptr, eps, kv_heads, d, a_.v.row(r));
      RmsNorm(a_.k.row(r), w.k_norm.data(), eps, kv_heads, d, a_.k.row(r));
      Rotate(a_.k.row(r), kv_heads, d, a_.cos[type].row(r), a_.sin[type].row(r), a_.cos[type].width());
      const BlockTableView& table = step.batch.tables[static_cast<size_t>(rows_.sequences[r])][type];
      AppendKv(shape, step.storage.View(plan, table), rows_.positions[r], a_.k.row(r), a_.v.row(r));
    }
  });
}

void ForwardPass::SelfAttention(const Step& step, const LayerPlan& plan, const PlacedLayer& w) {
  const size_t d = static_cast<size_t>(plan.head_dim), heads = static_cast<size_t>(plan.heads);
  const size_t hidden = static_cast<size_t>(plan_.hidden()), type = static_cast<size_t>(plan.attention);
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  Project(a_.normed, w.q_proj, a_.q);
  ForRows(heads * d, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      RmsNorm(a_.q.row(r), w.q_norm.data(), eps, heads, d, a_.q.row(r));
      Rotate(a_.q.row(r), heads, d, a_.cos[type].row(r), a_.sin[type].row(r), a_.cos[type].width());
    }
  });

  std::vector<KvBlocks> views;  // [sequences]
  for (const auto& tables : step.batch.tables) views.push_back(step.storage.View(plan, tables[type]));
  std::vector<AttentionRow> rows(rows_.count());
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t position = rows_.positions[r];
    rows[r] = {position, &views[static_cast<size_t>(rows_.sequences[r])]};
    const int64_t seen = plan.window == 0 ? position + 1 : std::min(position + 1, plan.window);
    flops_ += 4.0 * static_cast<double>(seen) * static_cast<double>(heads * d);
  }
  a_.attention.Resize(rows_.count(), heads * d);
  Attention(pool_, attention_scratch_, {plan.heads, plan.kv_heads, plan.head_dim, plan.window}, a_.q.data(), rows,
            a_.attention.data());
  if (step.taps != nullptr) {
    step.taps->OnTap(Tap::kAttention, plan.index, {a_.attention.data(), rows.size() * heads * d},
                     static_cast<int64_t>(rows.size()), static_cast<int64_t>(heads * d));
  }
  Project(a_.attention, w.o_proj, a_.branch);
  ForRows(hidden, [&](size_t begin, size_t end) {
    AddRmsNorm(a_.branch.row(begin), w.post_attention_layernorm.data(), eps, end - begin, hidden, a_.hidden.row(begin));
  });
}

void ForwardPass::FeedForward(const LayerPlan& plan, const PlacedLayer& w) {
  const size_t hidden = static_cast<size_t>(plan_.hidden()), width = static_cast<size_t>(plan.ffn_width);
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  ForRows(hidden, [&](size_t begin, size_t end) {
    RmsNorm(a_.hidden.row(begin), w.pre_feedforward_layernorm.data(), eps, end - begin, hidden, a_.normed.row(begin));
  });
  a_.gate.Resize(rows_.count(), width);
  a_.up.Resize(rows_.count(), width);
  const MatmulTarget targets[2] = {{w.gate_proj, a_.gate.data(), plan.ffn_width},
                                   {w.up_proj, a_.up.data(), plan.ffn_width}};
  Project(a_.normed, targets, rows_.count());
  ForRows(width,
          [&](size_t begin, size_t end) { GeluMul(a_.gate.row(begin), a_.up.row(begin), end - begin, width, width); });
  Project(a_.gate, w.down_proj, a_.branch);
  if (plan.has_experts) Experts(w);
  ForRows(hidden, [&](size_t begin, size_t end) {
    AddRmsNorm(a_.branch.row(begin), w.post_feedforward_layernorm.data(), eps, end - begin, hidden,
               a_.hidden.row(begin));
  });
}

// branch = norm_1(branch) + norm_2(experts of the residual stream).
void ForwardPass::Experts(const PlacedLayer& w) {
  const size_t hidden = static_cast<size_t>(plan_.hidden());
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  ForRows(hidden, [&](size_t begin, size_t end) {
    const size_t rows = end - begin;
    RmsNorm(a_.branch.row(begin), w.post_feedforward_layernorm_1.data(), eps, rows, hidden, a_.branch.row(begin));
    RmsNorm(a_.hidden.row(begin), w.router_scale.data(), eps, rows, hidden, a_.normed.row(begin));
  });
  Project(a_.normed, w.router_proj, a_.router);
  const ExpertRouting routing = RouteExperts(a_.router.data(), rows_.count(), a_.router.width(),
                                             plan_.config.top_k_experts, w.router_per_expert_scale);
  ForRows(hidden, [&](size_t begin, size_t end) {
    RmsNorm(a_.hidden.row(begin), w.pre_feedforward_layernorm_2.data(), eps, end - begin, hidden, a_.normed.row(begin));
  });
  a_.expert_branch.Resize(rows_.count(), hidden);
  RunExperts(pool_, matmul_scratch_, w.experts_gate_up, w.experts_down, routing, a_.normed.data(),
             a_.expert_branch.data());
  const WeightMatrix &gate_up = w.experts_gate_up[0], &down = w.experts_down[0];
  flops_ += 2.0 * static_cast<double>(routing.choices.size()) *
            static_cast<double>(gate_up.rows * gate_up.cols + down.rows * down.cols);
  ForRows(hidden, [&](size_t begin, size_t end) {
    AddRmsNorm(a_.expert_branch.row(begin), w.post_feedforward_layernorm_2.data(), eps, end - begin, hidden,
               a_.branch.row(begin));
  });
}

void ForwardPass::PerLayerBranch(const LayerPlan& plan, const PlacedLayer& w) {
  const size_t hidden = static_cast<size_t>(plan_.hidden()), p = static_cast<size_t>(plan_.per_layer_width());
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  const size_t offset = static_cast<size_t>(plan.index - per_layer_begin_) * p;
  Project(a_.hidden, w.per_layer_input_gate, a_.per_layer_gate);
  ForRows(p, [&](size_t begin, size_t end) {
    GeluMul(a_.per_layer_gate.row(begin), a_.per_layer.row(begin) + offset, end - begin, p, a_.per_layer.width());
  });
  Project(a_.per_layer_gate, w.per_layer_projection, a_.branch);
  ForRows(hidden, [&](size_t begin, size_t end) {
    AddRmsNorm(a_.branch.row(begin), w.post_per_layer_input_norm.data(), eps, end - begin, hidden,
               a_.hidden.row(begin));
  });
}

// Goes on with the `kept` rows only (rising). Whatever later layers read of a row moves with it.
void ForwardPass::KeepRows(std::span<const int32_t> kept) {
  for (size_t to = 0; to < kept.size(); ++to) {
    const size_t from = static_cast<size_t>(kept[to]);
    const auto move = [&](RowBuffer& x) {
      if (from != to) std::copy_n(x.row(from), x.width(), x.row(to));
    };
    for (RowBuffer* x : {&a_.hidden, &a_.embedding, &a_.normed}) move(*x);
    for (size_t type = 0; type < kKvGroups; ++type) move(a_.cos[type]), move(a_.sin[type]);
    rows_.ids[to] = rows_.ids[from];
    rows_.positions[to] = rows_.positions[from];
    rows_.sequences[to] = rows_.sequences[from];
  }
  rows_.ids.resize(kept.size());
  rows_.positions.resize(kept.size());
  rows_.sequences.resize(kept.size());
}

void ForwardPass::Logits(const Step& step, std::span<float> logits) {
  const size_t hidden = static_cast<size_t>(plan_.hidden()), vocab = static_cast<size_t>(plan_.vocab());
  const float eps = static_cast<float>(plan_.config.rms_norm_eps);
  a_.normed.Resize(rows_.count(), hidden);
  ForRows(hidden, [&](size_t begin, size_t end) {
    RmsNorm(a_.hidden.row(begin), weights_.norm.data(), eps, end - begin, hidden, a_.normed.row(begin));
  });
  if (step.taps != nullptr) {
    step.taps->OnTap(Tap::kFinalNorm, -1, {a_.normed.data(), rows_.count() * hidden},
                     static_cast<int64_t>(rows_.count()), static_cast<int64_t>(hidden));
  }
  if (rows_.count() > step.batch.logit_rows.size()) KeepRows(step.batch.logit_rows);
  if (rows_.count() == 0) return;
  const MatmulTarget target{weights_.embed_tokens, logits.data(), plan_.vocab()};
  Project(a_.normed, {&target, 1}, rows_.count());
  const size_t elements = rows_.count() * vocab;
  if (plan_.config.final_logit_softcapping) {
    const float cap = static_cast<float>(*plan_.config.final_logit_softcapping);
    pool_.ParallelFor(elements, 4096,
                      [&](size_t begin, size_t end, int) { Softcap(logits.data() + begin, end - begin, cap); });
  }
  for (size_t r = 0; r < rows_.count(); ++r) {
    if (AllFinite(logits.data() + r * vocab, vocab)) continue;
    Throw(ErrorKind::kDevice, "logits: found a value that is not finite at position " +
                                  std::to_string(rows_.positions[r]) +
                                  ", wanted finite numbers; norm.weight or embed_tokens.weight may be damaged");
  }
}

}  // namespace lapidary::cpu
