#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"

namespace lapidary {
namespace {

// Rows of a step whose logits give logprobs of prompts: with a vocabulary of 262,144 each takes 1 MiB.
constexpr int64_t kScoredRows = 32;
// Part of a step that prompts get however many decode.
constexpr int64_t kPromptShare = 4;

// Blocks of a group with a window. Short texts need as many as in the other group, long ones two windows for later
// sequences to begin from: at the end of the prompt and at that of the answer.
int64_t WindowBlocks(const KvGroup& group, const EngineOptions& options, int64_t all) {
  const int64_t running = BlocksNeeded(group, options.max_context, options.step_tokens);
  if (!options.prefix_cache) return std::min(all, running * options.max_sequences);
  const int64_t window = BlocksNeeded(group, options.max_context, 1);
  return std::min(all, std::max((running + 2 * window) * options.max_sequences, all / 4));
}

std::array<int32_t, kKvGroups> PoolSizes(const KvLayout& layout, const EngineOptions& options) {
  std::array<int32_t, kKvGroups> sizes{};
  for (size_t g = 0; g < kKvGroups; ++g) {
    const KvGroup& group = layout.groups[g];
    const int64_t all = BlocksNeeded({.layers = group.layers}, options.cache_tokens, 1);
    if (all > std::numeric_limits<int32_t>::max()) {
      Throw(ErrorKind::kInvalidArgument, "K/V cache: found " + std::to_string(options.cache_tokens) +
                                             " tokens, wanted fewer than 2^31 blocks of " +
                                             std::to_string(kKvBlockTokens));
    }
    sizes[g] = static_cast<int32_t>(group.window == 0 ? all : WindowBlocks(group, options, all));
  }
  return sizes;
}

auto Is(SequenceId id) {
  return [id](const std::unique_ptr<Sequence>& sequence) { return sequence->id == id; };
}

// Takes a sequence out of a list; null when it is not there.
template <typename List>
std::unique_ptr<Sequence> TakeOut(List& list, SequenceId id) {
  const auto found = std::find_if(list.begin(), list.end(), Is(id));
  if (found == list.end()) return nullptr;
  std::unique_ptr<Sequence> sequence = std::move(*found);
  list.erase(found);
  return sequence;
}

// At its place in the order of arrival.
template <typename List>
void Insert(List& list, std::unique_ptr<Sequence> sequence) {
  const auto later =
      std::find_if(list.begin(), list.end(), [&](const auto& other) { return other->id > sequence->id; });
  list.insert(later, std::move(sequence));
}

}  // namespace

Scheduler::Scheduler(Backend& backend, const EngineOptions& options)
    : backend_(backend), options_(options), pools_{BlockPool(0), BlockPool(0)} {
  const std::array<int32_t, kKvGroups> sizes = PoolSizes(backend.plan().kv, options);
  pools_ = {BlockPool(sizes[0]), BlockPool(sizes[1])};
  if (options.prefix_cache) cache_.emplace(backend.plan().kv, pools_);
  backend.AllocateKv(sizes, options.kv_type);
}

void Scheduler::Leave(Sequence& sequence) {
  if (cache_) {
    cache_->Finish(sequence.tokens, sequence.cached, sequence.blocks, sequence.cursor);
    sequence.blocks.MarkWindow(sequence.cached);
  }
  sequence.blocks.Clear();
  sequence.cursor = {};
}

void Scheduler::SetBack(Sequence& sequence) {
  Leave(sequence);
  sequence.cached = sequence.rows = 0;
  sequence.draft.clear();
}

void Scheduler::Cancel(SequenceId id) {
  std::erase_if(waiting_, Is(id));
  std::erase_if(paused_, Is(id));
  if (const auto sequence = TakeOut(running_, id)) Leave(*sequence);
}

void Scheduler::Pause(SequenceId id) {
  if (auto waiting = TakeOut(waiting_, id)) paused_.push_back(std::move(waiting));
  auto running = TakeOut(running_, id);
  if (!running) return;
  SetBack(*running);
  paused_.push_back(std::move(running));
}

void Scheduler::Resume(SequenceId id) {
  if (auto sequence = TakeOut(paused_, id)) Insert(waiting_, std::move(sequence));
}

bool Scheduler::Has(SequenceId id) const {
  const auto has = [id](const auto& list) { return std::any_of(list.begin(), list.end(), Is(id)); };
  return has(waiting_) || has(running_) || has(paused_);
}

// Whether the sequence can be computed as far as its tokens go, and a block beyond, beside what those that run need for
// the same.
bool Scheduler::HasRoom(const Sequence& sequence, const PrefixCache::Match& match) const {
  const KvLayout& layout = backend_.plan().kv;
  const std::array<int64_t, kKvGroups> in_use = cache_ ? cache_->InUse(match) : std::array<int64_t, kKvGroups>{};
  for (size_t g = 0; g < kKvGroups; ++g) {
    const KvGroup& group = layout.groups[g];
    const auto needs = [&](const Sequence& s) {
      const int64_t length = std::min(s.limit, static_cast<int64_t>(s.tokens.size()) + kKvBlockTokens);
      const int64_t rows = s.pending() == 1 ? 1 + NgramDrafter::kMaxDraft : options_.step_tokens;
      return BlocksNeeded(group, length, rows);
    };
    // A window moves on and then needs room for itself.
    int64_t missing = needs(sequence) - (group.window == 0 ? in_use[g] : 0);
    for (const auto& other : running_) {
      missing += std::max<int64_t>(0, needs(*other) - other->blocks.held(static_cast<int>(g)));
    }
    if (missing > pools_[g].available_count()) return false;
  }
  return true;
}

void Scheduler::Start(Sequence& sequence, const PrefixCache::Match& match) {
  if (cache_) {
    sequence.cached =
        cache_->Start(match, sequence.blocks, sequence.cursor,
                      [this](int group, int32_t from, int32_t to) { return backend_.CopyKvBlock(group, from, to); });
    prefix_hit_tokens_ += sequence.cached;
  }
  const auto prompt = static_cast<int64_t>(sequence.request.prompt.size());
  if (!sequence.started) sequence.prefix_hit = sequence.cached;
  sequence.started = true;
  // Where others may go on: behind the prompt, before its last token, which the same prompt computes again, and where
  // this one would have begun if no window had been gone.
  sequence.cuts = {prompt - 1, prompt};
  if (match.reach > sequence.cached) sequence.cuts.push_back(match.reach);
}

void Scheduler::Admit() {
  while (!waiting_.empty() && static_cast<int>(running_.size()) < options_.max_sequences) {
    Sequence& sequence = *waiting_.front();
    PrefixCache::Match match;
    if (cache_) match = cache_->Find(sequence.tokens, sequence.reusable());
    // Alone, every sequence has room: its limit is within the cache.
    if (!running_.empty() && !HasRoom(sequence, match)) return;
    Start(sequence, match);
    Insert(running_, std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::PreemptLatest() {
  std::unique_ptr<Sequence> latest = std::move(running_.back());
  running_.pop_back();
  SetBack(*latest);
  Insert(waiting_, std::move(latest));
  ++preemptions_;
}

bool Scheduler::TakeBlocks(size_t index, int64_t end) {
  while (!running_[index]->blocks.Reserve(end)) {
    if (index + 1 == running_.size()) return false;
    PreemptLatest();
  }
  return true;
}

void Scheduler::PlanDecodes(int64_t draft_rows) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.pending() != 1) continue;
    if (sequence.drafter) {
      const auto draft = sequence.drafter->Propose(std::min(draft_rows, sequence.draft_room()));
      // A guess is not worth another's blocks.
      if (sequence.blocks.Reserve(sequence.cached + 1 + static_cast<int64_t>(draft.size()))) {
        sequence.draft.assign(draft.begin(), draft.end());
      }
    }
    const auto rows = 1 + static_cast<int64_t>(sequence.draft.size());
    if (!TakeBlocks(i, sequence.cached + rows)) continue;
    sequence.rows = rows;
    draft_rows -= rows - 1;
  }
}

// An equal part to each prompt, so that a short one does not wait for a long one; what some do not need goes to the
// earliest.
void Scheduler::PlanPrompts(int64_t rows) {
  std::vector<std::pair<size_t, int64_t>> parts;  // index in running_, rows
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->rows == 0 && running_[i]->pending() > 1) parts.emplace_back(i, 0);
  }
  if (parts.empty()) return;
  const int64_t equal = std::max<int64_t>(1, rows / static_cast<int64_t>(parts.size()));
  int64_t scored = kScoredRows;
  for (const int64_t most : {equal, rows}) {
    for (auto& [index, part] : parts) {
      const Sequence& sequence = *running_[index];
      int64_t more = std::min({rows, most, sequence.pending() - part});
      if (sequence.unscored() > 0) scored -= more = std::min(more, scored);
      part += more;
      rows -= more;
    }
  }
  for (const auto& [index, part] : parts) {
    if (index >= running_.size()) return;  // preempted
    Sequence& sequence = *running_[index];
    if (part > 0 && TakeBlocks(index, sequence.cached + part)) sequence.rows = part;
  }
}

void Scheduler::Plan() {
  Admit();
  int64_t decodes = 0;
  for (const auto& sequence : running_) {
    sequence->rows = 0;
    sequence->draft.clear();
    decodes += sequence->pending() == 1;
  }
  const bool prompts = decodes < static_cast<int64_t>(running_.size());
  const int64_t least = prompts ? std::max<int64_t>(1, options_.step_tokens / kPromptShare) : 0;
  PlanDecodes(std::max<int64_t>(0, options_.step_tokens - decodes - least));
  int64_t left = options_.step_tokens;
  for (const auto& sequence : running_) left -= sequence->rows;
  PlanPrompts(std::max(left, least));
}

void Scheduler::Settle(Sequence& sequence) {
  sequence.blocks.Truncate(sequence.cached);
  if (cache_) {
    cache_->Extend(sequence.tokens, sequence.cached, sequence.blocks, sequence.cursor);
    std::erase_if(sequence.cuts, [&](int64_t cut) {
      if (cut > sequence.cached) return false;
      sequence.blocks.MarkWindow(cut);
      return true;
    });
  }
  sequence.blocks.ReleaseBefore(sequence.cached);
}

std::vector<std::unique_ptr<Sequence>> Scheduler::TakeFinished() {
  std::vector<std::unique_ptr<Sequence>> finished;
  for (auto& sequence : running_) {
    if (sequence->finish == FinishReason::kNone) continue;
    Leave(*sequence);
    finished.push_back(std::move(sequence));
  }
  std::erase(running_, nullptr);
  return finished;
}

void Scheduler::DropStep() {
  std::erase_if(running_, [](const auto& sequence) { return sequence->rows > 0; });
}

void Scheduler::Count(EngineCounters& counters) const {
  counters.running = static_cast<int64_t>(running_.size());
  counters.waiting = static_cast<int64_t>(waiting_.size());
  counters.paused = static_cast<int64_t>(paused_.size());
  for (size_t g = 0; g < kKvGroups; ++g) {
    counters.total_blocks[g] = pools_[g].count();
    counters.used_blocks[g] = pools_[g].used_count();
    counters.cached_blocks[g] = pools_[g].kept_count();
  }
  counters.preemptions = preemptions_;
  counters.prefix_hit_tokens = prefix_hit_tokens_;
}

}  // namespace lapidary
