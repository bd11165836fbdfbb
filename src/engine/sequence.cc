#include "engine/sequence.h"

#include <algorithm>
#include <utility>

namespace lapidary {
namespace {

int64_t TokenLimit(const SequenceRequest& request, int64_t max_context) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (request.max_new_tokens < 0 || request.max_new_tokens > max_context - prompt) return max_context;
  return prompt + request.max_new_tokens;
}

}  // namespace

Sequence::Sequence(SequenceId sequence_id, SequenceRequest sequence_request, const ModelPlan& plan, BlockPools& pools,
                   const EngineOptions& options)
    : id(sequence_id),
      request(std::move(sequence_request)),
      tokens(request.prompt),
      limit(TokenLimit(request, options.max_context)),
      sampler(request.sampling, request.prompt, plan.vocab()),
      blocks(plan.kv, pools),
      reported(request.prompt.size()) {
  if (request.speculation == Speculation::kNgram) drafter.emplace().Append(tokens);
}

bool Sequence::EndsAt(int32_t token) const {
  return std::find(request.eos_ids.begin(), request.eos_ids.end(), token) != request.eos_ids.end();
}

int64_t Sequence::unscored() const {
  if (!request.prompt_logprobs) return 0;
  return static_cast<int64_t>(request.prompt.size() - 1 - prompt_logprobs.size());
}

int64_t Sequence::reusable() const {
  return static_cast<int64_t>(unscored() > 0 ? prompt_logprobs.size() : tokens.size() - 1);
}

bool Sequence::plain_greedy() const {
  return request.top_logprobs < 0 && scored_rows == 0 && IsPlainGreedy(request.sampling);
}

bool Sequence::only_samples() const {
  return request.top_logprobs < 0 && scored_rows == 0 && (draft.empty() || !sampler.counts_history());
}

// Rows past its tokens are its draft.
void Sequence::LayOut(StepRows& step) {
  const auto known = static_cast<int64_t>(tokens.size());
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const size_t logit_rows_before = step.logit_rows.size();
  scored_rows = 0;
  for (int64_t position = cached; position < cached + rows; ++position) {
    const bool chooses = position >= known - 1 && request.max_new_tokens != 0;
    const bool scores = position < prompt - 1 && position >= prompt - 1 - unscored();
    scored_rows += scores;
    if (chooses || scores) step.logit_rows.push_back(static_cast<int32_t>(step.ids.size()));
    step.ids.push_back(position < known ? tokens[static_cast<size_t>(position)]
                                        : draft[static_cast<size_t>(position - known)]);
    step.positions.push_back(static_cast<int32_t>(position));
    step.sequences.push_back(static_cast<int32_t>(step.tables.size()));
  }
  step.tables.push_back({blocks.View(0), blocks.View(1)});
  logit_rows = static_cast<int64_t>(step.logit_rows.size() - logit_rows_before);
}

void Sequence::TakeRows(std::span<float> logits, std::span<const int32_t> best, int64_t vocab) {
  const auto width = static_cast<size_t>(vocab);
  for (int64_t row = 0; row < scored_rows; ++row) {
    const int32_t token = request.prompt[prompt_logprobs.size() + 1];
    prompt_logprobs.push_back(ComputeLogprobs(logits.first(width), token, request.top_logprobs));
    logits = logits.subspan(width);
  }
  reported = tokens.size();
  logprobs.clear();
  if (cached < static_cast<int64_t>(tokens.size())) return;
  if (request.max_new_tokens == 0) {
    finish = FinishReason::kLength;
  } else {
    Advance(logits, best, width);
  }
}

int32_t Sequence::Choose(std::span<float> logits) {
  if (request.top_logprobs < 0) return sampler.Choose(logits);
  // The sampler changes its logits, logprobs are of the model's.
  std::vector<float> changed(logits.begin(), logits.end());
  const int32_t token = sampler.Choose(changed);
  logprobs.push_back(ComputeLogprobs(logits, token, request.top_logprobs));
  return token;
}

void Sequence::Advance(std::span<float> logits, std::span<const int32_t> best, size_t width) {
  const size_t drafted = draft.size(), before = tokens.size();
  int64_t confirmed = 0;
  for (size_t row = 0; finish == FinishReason::kNone; ++row) {
    const int32_t token = best.empty() ? Choose(logits.subspan(row * width, width)) : best[row];
    const bool as_drafted = row < drafted && token == draft[row];
    confirmed += as_drafted;
    if (EndsAt(token)) {
      finish = FinishReason::kStop;
      break;
    }
    sampler.Accept(token);
    tokens.push_back(token);
    if (static_cast<int64_t>(tokens.size()) == limit) finish = FinishReason::kLength;
    if (!as_drafted) break;
  }
  if (drafter) {
    drafter->Append(std::span(tokens).subspan(before));
    drafter->Report(static_cast<int64_t>(drafted), confirmed);
  }
  stats.drafted += static_cast<int64_t>(drafted);
  stats.accepted += confirmed;
  // Rows behind the last confirmed one wrote K/V of tokens that were not taken.
  cached = std::min(cached, static_cast<int64_t>(tokens.size()) - 1);
}

SequenceUpdate Sequence::Update() {
  SequenceUpdate update{.id = id, .tokens = std::span(tokens).subspan(reported), .finish = finish};
  update.logprobs = std::span(logprobs).first(std::min(logprobs.size(), update.tokens.size()));
  if (first_update) update.prompt_logprobs = prompt_logprobs;
  update.cached_prompt_tokens = prefix_hit;
  first_update = false;
  return update;
}

void StepSampling::Clear() {
  rows.clear();
  touched_.clear();
  ends_.clear();
}

void StepSampling::Add(const Sequence& sequence) {
  sequence.sampler.AppendTouched(touched_);
  for (int64_t row = 0; row < sequence.logit_rows; ++row) {
    rows.push_back({&sequence.sampler.params(), static_cast<uint64_t>(sequence.sampler.accepted() + row), {}});
  }
  ends_.push_back({rows.size(), touched_.size()});
}

std::span<const RowSampling> StepSampling::View() {
  size_t row = 0, touched = 0;
  for (const auto& [rows_end, touched_end] : ends_) {
    for (; row < rows_end; ++row) rows[row].touched = std::span(touched_).subspan(touched, touched_end - touched);
    touched = touched_end;
  }
  return rows;
}

void StepRows::Clear() {
  ids.clear();
  positions.clear();
  sequences.clear();
  logit_rows.clear();
  tables.clear();
}

StepBatch StepRows::View() const {
  StepBatch batch;
  batch.ids = ids;
  batch.positions = positions;
  batch.sequences = sequences;
  batch.tables = tables;
  batch.logit_rows = logit_rows;
  return batch;
}

}  // namespace lapidary
