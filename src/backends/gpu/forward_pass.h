#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "backends/backend.h"
#include "backends/gpu/kv_storage.h"
#include "backends/gpu/placed_weights.h"
#include "backends/gpu/products.h"
#include "backends/gpu/rotation.h"
#include "backends/gpu/sample_input.h"
#include "backends/gpu/scratch.h"
#include "backends/gpu/step_input.h"
#include "kernels/gpu/attention_decode.h"
#include "kernels/gpu/attention_prefill.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/experts.h"
#include "model/model_plan.h"

namespace lapidary::gpu {

// What a step gives back. Either may be empty.
struct StepOutput {
  std::span<float> logits;  // [logit rows, vocab]
  std::span<int32_t> best;  // [logit rows]
  // How `best` are chosen, sent for the logit rows in their order; null: the best logit.
  const SampleInput* sampling = nullptr;
};

// The most rows that one sequence has in the step.
int64_t LongestRun(std::span<const int32_t> sequences);

// One step of any number of rows, launch by launch; steps in which each sequence decodes can be recorded. Not
// thread-safe.
class ForwardPass {
 public:
  struct Setup {
    DeviceInfo device;
    ActivationTerms terms = ActivationTerms::kThree;
    int64_t max_positions = 0;  // bound of position + 1
    // Most rows of the steps that LaunchDecode is called for: memory for them is taken once, so that it stays where it
    // is. 0: Run alone is called.
    int64_t decode_rows = 0;
  };

  // Everything must outlive it.
  ForwardPass(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage, const Setup& setup);

  // Gives the step's work to `stream` and waits for it. The batch has been checked and sent to `input`.
  // Throws Error kDevice (a hidden state that is not finite, naming the layer; a failed launch).
  void Run(const StepBatch& batch, const StepInput& input, const StepOutput& output, TapSink* taps, gpuStream stream);

  // Gives a step of the rows in `input` to `stream`, at most `rows` of them, all of whose choices are wanted and of
  // which no sequence has more than kDecodeFewRows. Rows up to `rows` take part, those that are not there with zeros
  // for ids and positions, but write no K/V. May be recorded once it has been called for as many rows: what changes
  // from step to step is read from `input`.
  // Where `sampling` is not null, it says how tokens are chosen, and is read as `input` is.
  void LaunchDecode(const StepInput& input, const SampleInput* sampling, int64_t rows, gpuStream stream);
  // What LaunchDecode leaves, in device memory: the first value that is not finite (WhereNonFinite), in the place of
  // two ids, then the chosen id of each row.
  const int32_t* results() const { return results_.data(); }
  static constexpr int kResultIds = 2;
  // Throws Error kDevice where `results`, copied to the host, tell of a value that is not finite.
  static void CheckResults(const int32_t* results);

  double flops() const { return products_.flops() + attention_flops_; }

 private:
  struct Step;  // what stays the same through one step

  // The rows that are still under way, in device memory.
  struct Rows {
    int64_t count = 0;
    const int32_t* live = nullptr;  // how many of them are there, in device memory; null: all
    const int32_t* ids = nullptr;
    StepRowsView view;
    std::span<const int32_t> positions;  // on the host, for counting only
    bool is_decode = false;              // few rows of each sequence
  };

  // How attention of one type is cut, made when it is first needed.
  struct AttentionKind {
    std::array<std::optional<AttentionDecodePlan>, 2> decode;  // for kDecodeFewRows rows and for more
    std::optional<PrefillTiling> prefill;
    Scratch<QueryTile> tiles;  // of the step
    int tile_count = 0;        // 0: not cut yet
  };

  // Activations; each buffer has one meaning.
  struct Activations {
    Scratch<float> hidden;           // [rows, D] the residual stream
    Scratch<float> embedding;        // [rows, D] the scaled embedding, which the per-layer inputs are made from
    Scratch<float> kept;             // [rows, D] rows on their way to a smaller batch
    Scratch<float> normed;           // [rows, D] for taps
    Scratch<float> qkv;              // [terms, rows, q, k, v]
    Scratch<uint16_t> q_heads;       // [terms, rows, heads * head_dim] normed and rotated
    Scratch<float> attention;        // [rows, heads * head_dim] for taps
    Scratch<float> branch;           // [terms, rows, D] output of a branch before it joins the residual stream
    Scratch<float> gate_up;          // [terms, rows, 2 F]
    Scratch<float> router;           // [terms, rows, E]
    Scratch<uint16_t> expert_input;  // [terms, rows, D]
    Scratch<float> expert_branch, ffn_branch;  // [rows, D]
    Scratch<float> context;                    // [terms, rows, layers * P]
    Scratch<float> per_layer;                  // [rows, layers of the span * P]
    Scratch<float> per_layer_gate;             // [terms, rows, P]
    Scratch<float> logits;                     // [terms, piece, V]
    Scratch<float> maxima;                     // [piece, groups of ids]
    Scratch<std::byte> sampling;               // for a piece
  };

  // rows_ holds those of the step.
  void Start(const Step& step);
  bool Layers(const Step& step);
  void Embed(const Step& step);
  void PerLayerInputs(const Step& step, int layer_begin, int layer_end);
  void NormInput(const Step& step, const PlacedLayer& w);
  // Takes its normed input from the products' input, and leaves the next layer's there. False when no row is left after
  // this layer's K/V.
  bool DecoderLayer(const Step& step, const LayerPlan& plan, const PlacedLayer& w);
  void AppendKv(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& k);
  // From the raw queries to the residual stream.
  void Attend(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& q);
  const AttentionDecodePlan& DecodePlan(const LayerPlan& plan, bool few, gpuStream stream);
  void DecodeAttention(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& q);
  RowOutput AttentionOutput(const Step& step, int64_t width);
  void PrefillAttention(const Step& step, const LayerPlan& plan, const PlacedLayer& w, const RowInput& q);
  // `buffer` as [terms, rows, width].
  RowOutput TermsIn(Scratch<uint16_t>& buffer, int terms, int64_t width) const;
  // branch = norm_1(branch) + norm_2(experts of the residual stream).
  RowInput AddExperts(const Step& step, const PlacedLayer& w, const RowInput& branch);
  void FeedForward(const Step& step, const LayerPlan& plan, const PlacedLayer& w);
  void PerLayerBranch(const Step& step, const LayerPlan& plan, const PlacedLayer& w);
  void EndLayer(const LayerPlan& plan, const PlacedLayer& w, AddRmsNormTask& join);
  // Goes on with the rows whose logits are wanted.
  void KeepRows(const Step& step);
  void Logits(const Step& step);
  // Logits and best ids of rows [begin, begin + rows.max).
  void LogitsOfPiece(const Step& step, int64_t begin, const RowCount& rows);
  // The ids of the rows from their logits.
  void ChooseIds(const Step& step, int64_t begin, const RowCount& rows);
  KvCacheView CacheOf(const Step& step, const LayerPlan& plan) const;
  void ShowTap(const Step& step, Tap tap, int layer, const float* data, int64_t width);
  RowCount AllRows() const { return {static_cast<int32_t>(rows_.count), rows_.live}; }
  // Rows that buffers are made for.
  int64_t Room() const { return std::max({rows_.count, decode_rows_, int64_t{kFewRows}}); }
  void SetRows(int64_t rows);
  // Whether kernels may read the step's input while earlier ones run: in a step of LaunchDecode none writes it.
  bool ReadsAhead() const { return rows_.live != nullptr; }

  const ModelPlan& plan_;
  const PlacedWeights& weights_;
  const KvStorage& storage_;
  const DeviceInfo device_;
  const int64_t max_positions_;
  const int terms_;  // of activations of many rows
  const int64_t decode_rows_;
  Products products_;
  Rotation rotation_;
  Rows rows_;
  Activations a_;
  int per_layer_begin_ = 0, per_layer_end_ = 0;  // layers that a_.per_layer holds
  Scratch<int32_t> results_;                     // kResultIds for `bad`, [rows] best ids
  uint64_t* bad() const { return reinterpret_cast<uint64_t*>(results_.data()); }
  std::array<AttentionKind, kKvGroups> kinds_;
  Scratch<std::byte> attention_workspace_;
  std::optional<ExpertWorkspace> expert_workspace_;  // for expert_rows_ rows
  int64_t expert_rows_ = 0;
  double attention_flops_ = 0;
};

}  // namespace lapidary::gpu
