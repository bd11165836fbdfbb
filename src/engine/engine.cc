#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/sequence.h"

namespace lapidary {
namespace {

constexpr int kMostTopLogprobs = 20;
// Rows of a step whose logits give logprobs of prompts: with a vocabulary of 262,144 each takes 1 MiB.
constexpr int64_t kScoredRows = 32;

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

std::array<int32_t, kKvGroups> PoolSizes(const KvLayout& layout, const EngineOptions& options) {
  constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();
  std::array<int32_t, kKvGroups> sizes{};
  for (size_t g = 0; g < kKvGroups; ++g) {
    const int64_t each = BlocksNeeded(layout.groups[g], options.max_context, options.step_tokens);
    const int64_t all = BlocksNeeded({.layers = layout.groups[g].layers}, options.cache_tokens, 1);
    if (each > kMostBlocks / options.max_sequences || all > kMostBlocks) {
      Throw(ErrorKind::kInvalidArgument, "K/V cache: found " + std::to_string(options.max_sequences) +
                                             " sequences of " + std::to_string(options.max_context) +
                                             " tokens, wanted fewer than 2^31 blocks");
    }
    sizes[g] = static_cast<int32_t>(std::min(all, each * options.max_sequences));
  }
  return sizes;
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
    : backend_(backend), options_(Checked(options, backend.plan().config)), batch_(std::make_unique<Batch>()) {
  const std::array<int32_t, kKvGroups> sizes = PoolSizes(backend.plan().kv, options_);
  pools_ = std::make_unique<BlockPools>(BlockPools{BlockPool(sizes[0]), BlockPool(sizes[1])});
  backend_.AllocateKv(sizes, options_.kv_type);
}

Engine::~Engine() = default;

SequenceId Engine::Add(SequenceRequest request) {
  CheckRequest(request, backend_.plan().vocab(), options_.max_context);
  waiting_.push_back(std::make_unique<Sequence>(next_id_, std::move(request), backend_.plan(), *pools_, options_));
  return next_id_++;
}

void Engine::Cancel(SequenceId id) {
  const auto is_it = [id](const auto& sequence) { return sequence->id == id; };
  std::erase_if(waiting_, is_it);
  for (const auto& sequence : running_) {
    if (!is_it(sequence)) continue;
    for (size_t g = 0; g < kKvGroups; ++g) reserved_[g] -= sequence->needs[g];
  }
  std::erase_if(running_, is_it);
}

bool Engine::idle() const { return waiting_.empty() && running_.empty(); }

void Engine::Admit() {
  while (!waiting_.empty() && static_cast<int>(running_.size()) < options_.max_sequences) {
    const std::array<int64_t, kKvGroups>& needs = waiting_.front()->needs;
    for (size_t g = 0; g < kKvGroups; ++g) {
      if (reserved_[g] + needs[g] > (*pools_)[g].count()) return;
    }
    for (size_t g = 0; g < kKvGroups; ++g) reserved_[g] += needs[g];
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// Takes the blocks for the next `rows` rows of a sequence and lays them out. Rows past its tokens are its draft.
void Engine::PlanRows(Sequence& sequence, int64_t rows) {
  if (!sequence.blocks.Reserve(sequence.cached + rows)) {
    Throw(ErrorKind::kOutOfMemory, "K/V cache: found no free block, wanted those reserved for the sequence");
  }
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  const auto prompt = static_cast<int64_t>(sequence.request.prompt.size());
  const size_t logit_rows_before = batch_->logit_rows.size();
  sequence.scored_rows = 0;
  for (int64_t position = sequence.cached; position < sequence.cached + rows; ++position) {
    const bool chooses = position >= known - 1 && sequence.request.max_new_tokens != 0;
    const bool scores = position < prompt - 1 && position >= prompt - 1 - sequence.unscored();
    sequence.scored_rows += scores;
    if (chooses || scores) batch_->logit_rows.push_back(static_cast<int32_t>(batch_->ids.size()));
    batch_->ids.push_back(position < known ? sequence.tokens[static_cast<size_t>(position)]
                                           : sequence.draft[static_cast<size_t>(position - known)]);
    batch_->positions.push_back(static_cast<int32_t>(position));
    batch_->sequences.push_back(static_cast<int32_t>(batch_->tables.size()));
  }
  batch_->tables.push_back({sequence.blocks.View(0), sequence.blocks.View(1)});
  sequence.rows = rows;
  sequence.logit_rows = static_cast<int64_t>(batch_->logit_rows.size() - logit_rows_before);
}

// Decoding sequences first, one row and a draft each; what is left of the step goes to prompts in order of arrival.
void Engine::Plan() {
  batch_->Clear();
  int64_t left = options_.step_tokens;
  for (const auto& sequence : running_) {
    sequence->rows = sequence->logit_rows = 0;
    sequence->draft.clear();
    left -= sequence->pending() == 1;
  }
  for (const auto& sequence : running_) {
    if (sequence->pending() != 1) continue;
    if (sequence->drafter) {
      const auto draft = sequence->drafter->Propose(std::min(left, sequence->draft_room()));
      sequence->draft.assign(draft.begin(), draft.end());
      left -= static_cast<int64_t>(draft.size());
    }
    PlanRows(*sequence, 1 + static_cast<int64_t>(sequence->draft.size()));
  }
  if (batch_->ids.empty()) left = std::max<int64_t>(left, 1);
  int64_t scored_left = kScoredRows;
  for (const auto& sequence : running_) {
    int64_t rows = std::min(left, sequence->pending());
    if (sequence->unscored() > 0) rows = std::min(rows, scored_left);
    if (sequence->rows > 0 || rows <= 0) continue;
    PlanRows(*sequence, rows);
    left -= rows;
    scored_left -= sequence->scored_rows;
  }
}

// After a failure the cache rows of the step are undefined: nothing in it can go on.
void Engine::DropStep() {
  for (const auto& sequence : running_) {
    if (sequence->rows == 0) continue;
    for (size_t g = 0; g < kKvGroups; ++g) reserved_[g] -= sequence->needs[g];
  }
  std::erase_if(running_, [](const auto& sequence) { return sequence->rows > 0; });
}

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
  for (auto& sequence : running_) {
    if (sequence->rows == 0) continue;
    const bool decodes = sequence->pending() == 1 && sequence->sampler.accepted() > 0;
    if (decodes) {
      ++counters_.speculation.steps;
    } else {
      counters_.prompt_tokens += sequence->rows;
    }
    sequence->cached += sequence->rows;
    TakeRows(*sequence, logits, best);
    sequence->blocks.Truncate(sequence->cached);
    sequence->blocks.ReleaseBefore(sequence->cached);
    if (sequence->finish == FinishReason::kNone) continue;
    for (size_t g = 0; g < kKvGroups; ++g) reserved_[g] -= sequence->needs[g];
    sequence->blocks.Clear();
    finished_.push_back(std::move(sequence));
  }
  std::erase(running_, nullptr);
}

void Engine::Forward() {
  const auto vocab = static_cast<size_t>(backend_.plan().vocab());
  const bool greedy = std::all_of(running_.begin(), running_.end(), [](const auto& sequence) {
    return sequence->rows == 0 || sequence->logit_rows == 0 || sequence->plain_greedy();
  });
  best_.resize(greedy ? batch_->logit_rows.size() : 0);
  if (!best_.empty()) return backend_.ForwardGreedy(batch_->View(), best_, nullptr);
  logits_.resize(std::max(logits_.size(), batch_->logit_rows.size() * vocab));
  backend_.Forward(batch_->View(), std::span(logits_).first(batch_->logit_rows.size() * vocab), nullptr);
}

std::span<const SequenceUpdate> Engine::Step() {
  updates_.clear();
  finished_.clear();
  Admit();
  try {
    Plan();
    if (batch_->ids.empty()) return updates_;
    Forward();
  } catch (...) {
    DropStep();
    throw;
  }
  Collect();
  return updates_;
}

EngineCounters Engine::counters() const {
  EngineCounters counters = counters_;
  counters.running = static_cast<int64_t>(running_.size());
  counters.waiting = static_cast<int64_t>(waiting_.size());
  for (size_t g = 0; g < kKvGroups; ++g) {
    const BlockPool& pool = (*pools_)[g];
    counters.total_blocks[g] = pool.count();
    counters.used_blocks[g] = pool.count() - pool.free_count();
  }
  return counters;
}

const Engine::Sequence* Engine::Find(SequenceId id) const {
  for (const auto* list : {&running_, &finished_}) {
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
