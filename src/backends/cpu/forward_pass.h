#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/kv_storage.h"
#include "backends/cpu/placed_weights.h"
#include "base/thread_pool.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/matmul.h"
#include "model/model_plan.h"

namespace lapidary::cpu {

// A float32 buffer [rows, width] that keeps its memory between steps.
class RowBuffer {
 public:
  void Resize(size_t rows, size_t width) {
    width_ = width;
    if (data_.size() < rows * width) data_.resize(rows * width);
  }
  float* data() { return data_.data(); }
  float* row(size_t r) { return data_.data() + r * width_; }
  size_t width() const { return width_; }

 private:
  std::vector<float> data_;
  size_t width_ = 0;
};

// The rows that are still under way, in batch order.
struct StepRows {
  std::vector<int64_t> positions;
  std::vector<int32_t> sequences;
  std::vector<int32_t> ids;
  size_t count() const { return positions.size(); }
};

// Everything a step computes on its way; each buffer has one meaning.
struct Activations {
  RowBuffer hidden;          // [rows, D] the residual stream
  RowBuffer embedding;       // [rows, D] the scaled embedding, which the per-layer inputs are made from
  RowBuffer normed;          // [rows, D] input of a projection
  RowBuffer branch;          // [rows, D] output of a branch before it joins the residual stream
  RowBuffer q, k, v;         // [rows, heads * head_dim], [rows, kv_heads * head_dim]
  RowBuffer attention;       // [rows, heads * head_dim]
  RowBuffer gate, up;        // [rows, F]
  RowBuffer per_layer;       // [rows, layers of the span * P]
  RowBuffer per_layer_gate;  // [rows, P]
  RowBuffer expert_branch;   // [rows, D]
  RowBuffer router;          // [rows, E]
  std::array<RowBuffer, kKvGroups> cos, sin;  // [rows, rotary pairs of the attention type]
};

// One step of Gemma 4 on CPU kernels. Not thread-safe.
class ForwardPass {
 public:
  ForwardPass(const ModelPlan& plan, const PlacedWeights& weights, ThreadPool& pool);

  // See Backend::Forward. The batch has been checked.
  void Run(const StepBatch& batch, const KvStorage& storage, std::span<float> logits, TapSink* taps);

  double flops() const { return flops_; }

 private:
  struct Step;  // what stays the same through one Run

  void Start(const StepBatch& batch);
  void Embed();
  void RotationTables();
  void PerLayerInputs(int layer_begin, int layer_end);
  // False when no row is left after this layer's K/V.
  bool DecoderLayer(const Step& step, const LayerPlan& plan, const PlacedLayer& w);
  void WriteKv(const Step& step, const LayerPlan& plan, const PlacedLayer& w);
  void SelfAttention(const Step& step, const LayerPlan& plan, const PlacedLayer& w);
  void FeedForward(const LayerPlan& plan, const PlacedLayer& w);
  void Experts(const PlacedLayer& w);
  void PerLayerBranch(const LayerPlan& plan, const PlacedLayer& w);
  void KeepRows(std::span<const int32_t> kept);
  void Logits(const Step& step, std::span<float> logits);

  void Project(RowBuffer& x, std::span<const MatmulTarget> targets, size_t rows);
  void Project(RowBuffer& x, const WeightMatrix& weight, RowBuffer& out);
  template <typename F>
  void ForRows(size_t width, const F& f);
  void CheckFinite(RowBuffer& x, const std::string& where);

  const ModelPlan& plan_;
  const PlacedWeights& weights_;
  ThreadPool& pool_;
  std::array<std::vector<float>, kKvGroups> inverse_frequencies_;  // [rotary pairs]
  StepRows rows_;
  Activations a_;
  int per_layer_begin_ = 0;  // first layer that a_.per_layer holds
  MatmulScratch matmul_scratch_;
  AttentionScratch attention_scratch_;
  double flops_ = 0;
};

}  // namespace lapidary::cpu
