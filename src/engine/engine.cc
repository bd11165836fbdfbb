#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace lapidary {
namespace {

constexpr int kMostTopLogprobs = 20;

void CheckAtLeast(const char* name, int64_t value, int64_t least) {
  if (value >= least) return;
  Throw(ErrorKind::kInvalidArgument,
        std::string(name) + ": found " + std::to_string(value) + ", wanted at least " + std::to_string(least));
}

EngineOptions Checked(EngineOptions options, const Config& config) {
  const int64_t longest = config.max_position_embeddings;
  if (options.max_context == 0) options.max_context = longest;
  CheckAtLeast("context", options.max_context, 2);
  if (options.max_context > longest) {
    Throw(ErrorKind::kInvalidArgument, "context: found " + std::to_string(options.max_context) +
                                           " tokens, wanted at most the model's " + std::to_string(longest));
  }
  CheckAtLeast("sequences", options.max_sequences, 1);
  CheckAtLeast("tokens of a step", options.step_tokens, 1);
  if (options.cache_tokens == 0) {
    options.cache_tokens = options.max_sequences * options.max_context;
  } else {
    CheckAtLeast("tokens of the K/V cache", options.cache_tokens, 2);
    options.max_context = std::min(options.max_context, options.cache_tokens);
  }
  options.step_tokens = std::min(options.step_tokens, options.max_context);
  return options;
}

void CheckRequest(const SequenceRequest& request, int64_t vocab, int64_t max_context) {
  if (request.prompt.empty()) Throw(ErrorKind::kInvalidArgument, "prompt: found no tokens, wanted at least one");
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) {
      Throw(ErrorKind::kInvalidArgument,
            "prompt: found token id " + std::to_string(id) + ", wanted one in [0, " + std::to_string(vocab) + ")");
    }
  }
  if (static_cast<int64_t>(request.prompt.size()) >= max_context) {
    Throw(ErrorKind::kInvalidArgument, "prompt: found " + std::to_string(request.prompt.size()) +
                                           " tokens, wanted fewer than the context of " + std::to_string(max_context));
  }
  if (request.max_new_tokens < -1 || (request.max_new_tokens == 0 && !request.prompt_logprobs)) {
    Throw(ErrorKind::kInvalidArgument,
          "new tokens: found " + std::to_string(request.max_new_tokens) + ", wanted at least 1, or -1 for no limit");
  }
  if (request.top_logprobs < -1 || request.top_logprobs > kMostTopLogprobs) {
    Throw(ErrorKind::kInvalidArgument, "top_logprobs: found " + std::to_string(request.top_logprobs) +
                                           ", wanted 0 to " + std::to_string(kMostTopLogprobs) + ", or -1 for none");
  }
}

}  // namespace

Engine::Engine(Backend& backend, const EngineOptions& options)
    : backend_(backend),
      options_(Checked(options, backend.plan().config)),
      scheduler_(std::make_unique<Scheduler>(backend, options_)),
      step_(std::make_unique<StepRows>()),
      sampling_(std::make_unique<StepSampling>()) {}

Engine::~Engine() = default;

SequenceId Engine::Add(SequenceRequest request) {
  CheckRequest(request, backend_.plan().vocab(), options_.max_context);
  scheduler_->Add(
      std::make_unique<Sequence>(next_id_, std::move(request), backend_.plan(), scheduler_->pools(), options_));
  return next_id_++;
}

void Engine::Cancel(SequenceId id) { scheduler_->Cancel(id); }

void Engine::Pause(SequenceId id) { scheduler_->Pause(id); }
void Engine::Resume(SequenceId id) { scheduler_->Resume(id); }
bool Engine::Has(SequenceId id) const { return scheduler_->Has(id); }

bool Engine::idle() const { return scheduler_->idle(); }

// Hands a sequence the rows of `logits` or `best` that are its own, and takes them off the front.
void Engine::TakeRows(Sequence& sequence, std::span<float>& logits, std::span<const int32_t>& best) {
  const int64_t vocab = backend_.plan().vocab();
  const bool gains = sequence.cached >= static_cast<int64_t>(sequence.tokens.size());
  // The first token comes from the prompt's last row: that step is not a decode step.
  sequence.stats.steps += gains && sequence.sampler.accepted() > 0;
  const SpeculationStats before = sequence.stats;
  const auto rows = static_cast<size_t>(sequence.logit_rows);
  if (best.empty()) {
    const size_t used = rows * static_cast<size_t>(vocab);
    sequence.TakeRows(logits.first(used), {}, vocab);
    logits = logits.subspan(used);
  } else {
    sequence.TakeRows({}, best.first(rows), vocab);
    best = best.subspan(rows);
  }
  counters_.speculation.drafted += sequence.stats.drafted - before.drafted;
  counters_.speculation.accepted += sequence.stats.accepted - before.accepted;
  if (!gains) return;
  updates_.push_back(sequence.Update());
  counters_.decode_tokens += static_cast<int64_t>(updates_.back().tokens.size());
}

void Engine::Collect() {
  std::span<float> logits = logits_;
  std::span<const int32_t> best = best_;
  for (const auto& sequence : scheduler_->running()) {
    if (sequence->rows == 0) continue;
    const bool decodes = sequence->pending() == 1 && sequence->sampler.accepted() > 0;
    if (decodes) {
      ++counters_.speculation.steps;
    } else {
      counters_.prompt_tokens += sequence->rows;
    }
    sequence->cached += sequence->rows;
    TakeRows(*sequence, logits, best);
    scheduler_->Settle(*sequence);
  }
  finished_ = scheduler_->TakeFinished();
}

void Engine::Forward() {
  const auto vocab = static_cast<size_t>(backend_.plan().vocab());
  const auto all = [&](bool (Sequence::*property)() const) {
    return std::ranges::all_of(scheduler_->running(), [&](const auto& sequence) {
      return sequence->rows == 0 || sequence->logit_rows == 0 || (sequence.get()->*property)();
    });
  };
  const bool greedy = all(&Sequence::plain_greedy);
  const bool chosen = greedy || (backend_.Samples() && all(&Sequence::only_samples));
  best_.resize(chosen ? step_->logit_rows.size() : 0);
  if (!best_.empty() && greedy) return backend_.ForwardGreedy(step_->View(), best_, nullptr);
  if (!best_.empty()) {
    sampling_->Clear();
    for (const auto& sequence : scheduler_->running()) {
      if (sequence->rows > 0) sampling_->Add(*sequence);
    }
    return backend_.ForwardSample(step_->View(), sampling_->View(), best_);
  }
  logits_.resize(std::max(logits_.size(), step_->logit_rows.size() * vocab));
  backend_.Forward(step_->View(), std::span(logits_).first(step_->logit_rows.size() * vocab), nullptr);
}

std::span<const SequenceUpdate> Engine::Step() {
  updates_.clear();
  finished_.clear();
  try {
    scheduler_->Plan();
    step_->Clear();
    for (const auto& sequence : scheduler_->running()) {
      if (sequence->rows > 0) sequence->LayOut(*step_);
    }
    if (step_->ids.empty()) return updates_;
    Forward();
  } catch (...) {
    scheduler_->DropStep();
    throw;
  }
  Collect();
  return updates_;
}

EngineCounters Engine::counters() const {
  EngineCounters counters = counters_;
  scheduler_->Count(counters);
  return counters;
}

const Sequence* Engine::Find(SequenceId id) const {
  for (const auto* list : {&scheduler_->running(), &finished_}) {
    for (const auto& sequence : *list) {
      if (sequence->id == id) return sequence.get();
    }
  }
  return nullptr;
}

int64_t Engine::CachedTokens(SequenceId id) const {
  const Sequence* sequence = Find(id);
  return sequence ? sequence->cached : 0;
}

SpeculationStats Engine::Stats(SequenceId id) const {
  const Sequence* sequence = Find(id);
  return sequence ? sequence->stats : SpeculationStats{};
}

}  // namespace lapidary
