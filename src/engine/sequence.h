#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/drafter.h"
#include "engine/engine.h"
#include "kv/block_table.h"
#include "kv/prefix_cache.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"

namespace lapidary {

struct StepRows;

// One sequence from Add to its last update, waiting or running. Between steps the cache holds positions [0, cached),
// and while it decodes cached == tokens.size() - 1: the last chosen token has not been run yet.
struct Sequence {
  Sequence(SequenceId sequence_id, SequenceRequest sequence_request, const ModelPlan& plan, BlockPools& pools,
           const EngineOptions& options);

  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - cached; }
  // The longest draft that leaves room for the token chosen after it.
  int64_t draft_room() const { return limit - static_cast<int64_t>(tokens.size()) - 1; }
  // The rows are laid out behind those that `step` has.
  void LayOut(StepRows& step);
  // Prompt tokens whose logprobs are still to be computed.
  int64_t unscored() const;
  // The most positions that need not be computed when their K/V is there.
  int64_t reusable() const;
  bool plain_greedy() const;
  // Whether all that the rows' logits are for is a choice that does not depend on how a draft fares.
  bool only_samples() const;
  // What the rows of the step give: logprobs of the prompt, then the tokens that its last 1 + draft.size() rows
  // confirm, up to an eos or the limit. Sets `finish`. A greedy step has `best` [logit_rows], any other `logits`
  // [logit_rows, vocab].
  void TakeRows(std::span<float> logits, std::span<const int32_t> best, int64_t vocab);
  SequenceUpdate Update();

  SequenceId id;
  SequenceRequest request;
  std::vector<int32_t> tokens;  // prompt, then answer
  int64_t limit;                // of tokens.size()
  Sampler sampler;
  std::optional<NgramDrafter> drafter;
  SequenceBlocks blocks;
  PrefixCache::Cursor cursor;
  std::vector<int64_t> cuts;  // places at which the window is worth keeping, not yet passed
  int64_t cached = 0;
  bool started = false;
  int64_t prefix_hit = 0;  // prompt tokens that came from the prefix cache when it started
  SpeculationStats stats;
  FinishReason finish = FinishReason::kNone;
  // Of the current step.
  std::vector<int32_t> draft;
  int64_t rows = 0;  // 0: not in this step
  int64_t logit_rows = 0;
  int64_t scored_rows = 0;  // of the logit rows, those that give logprobs of the prompt
  size_t reported = 0;      // tokens that earlier updates reported, the prompt included
  bool first_update = true;
  std::vector<TokenLogprobs> logprobs;         // of the step's tokens
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt's second token and those behind it, as far as computed

 private:
  bool EndsAt(int32_t token) const;
  int32_t Choose(std::span<float> logits);
  void Advance(std::span<float> logits, std::span<const int32_t> best, size_t width);
};

// How the tokens of one step are chosen, sequence by sequence in the order of their rows.
struct StepSampling {
  std::vector<RowSampling> rows;

  void Clear();
  void Add(const Sequence& sequence);
  // Valid until the next change.
  std::span<const RowSampling> View();

 private:
  std::vector<TouchedId> touched_;
  std::vector<std::pair<size_t, size_t>> ends_;  // of each sequence, in rows and touched_
};

// The rows of one step, as StepBatch borrows them.
struct StepRows {
  std::vector<int32_t> ids, positions, sequences, logit_rows;
  std::vector<std::array<BlockTableView, kKvGroups>> tables;

  void Clear();
  StepBatch View() const;
};

}  // namespace lapidary
