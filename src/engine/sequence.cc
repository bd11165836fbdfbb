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

Engine::Sequence::Sequence(SequenceId sequence_id, SequenceRequest sequence_request, const ModelPlan& plan,
                           BlockPools& pools, const EngineOptions& options)
    : id(sequence_id),
      request(std::move(sequence_request)),
      tokens(request.prompt),
      limit(TokenLimit(request, options.max_context)),
      sampler(request.sampling, request.prompt, plan.vocab()),
      blocks(plan.kv, pools),
      reported(request.prompt.size()) {
  for (size_t g = 0; g < kKvGroups; ++g) needs[g] = BlocksNeeded(plan.kv.groups[g], limit, options.step_tokens);
  if (request.speculation == Speculation::kNgram) drafter.emplace().Append(tokens);
}

bool Engine::Sequence::EndsAt(int32_t token) const {
  return std::find(request.eos_ids.begin(), request.eos_ids.end(), token) != request.eos_ids.end();
}

void Engine::Sequence::Advance(std::span<float> logits, int64_t vocab) {
  const auto drafted = static_cast<int64_t>(draft.size());
  const auto width = static_cast<size_t>(vocab);
  const size_t before = tokens.size();
  int64_t confirmed = 0;
  for (int64_t row = 0; finish == FinishReason::kNone; ++row) {
    const int32_t token = sampler.Choose(logits.subspan(static_cast<size_t>(row) * width, width));
    const bool as_drafted = row < drafted && token == draft[static_cast<size_t>(row)];
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
    drafter->Report(drafted, confirmed);
  }
  stats.drafted += drafted;
  stats.accepted += confirmed;
  // Rows behind the last confirmed one wrote K/V of tokens that were not taken.
  cached = std::min(cached, static_cast<int64_t>(tokens.size()) - 1);
}

SequenceUpdate Engine::Sequence::Update() const { return {id, std::span(tokens).subspan(reported), finish}; }

void Engine::Batch::Clear() {
  ids.clear();
  positions.clear();
  sequences.clear();
  logit_rows.clear();
  tables.clear();
}

StepBatch Engine::Batch::View() const {
  StepBatch batch;
  batch.ids = ids;
  batch.positions = positions;
  batch.sequences = sequences;
  batch.tables = tables;
  batch.logit_rows = logit_rows;
  return batch;
}

}  // namespace lapidary
