#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "kv/block_table.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"

namespace lapidary {

struct EngineOptions {
  int64_t max_context = 0;  // tokens a sequence may reach, prompt and answer; 0: max_position_embeddings
  int max_sequences = 1;    // running at the same time; more wait
  // Rows of one step at most (prefill chunk); more only when that many sequences decode, or to leave prompts a quarter.
  int64_t step_tokens = 256;
  DType kv_type = DType::kF32;
  // Tokens that the K/V cache has room for, all sequences together; 0: max_sequences * max_context. A context that is
  // longer is cut to it.
  int64_t cache_tokens = 0;
  bool prefix_cache = true;  // K/V of ended sequences serve later ones that begin with the same tokens
};

enum class Speculation : uint8_t { kNone, kNgram };

struct SequenceRequest {
  std::vector<int32_t> prompt;   // not empty; ids in [0, vocab)
  int64_t max_new_tokens = -1;   // -1: until the context is full; 0: only with prompt_logprobs
  std::vector<int32_t> eos_ids;  // a chosen one ends the sequence and is not part of the answer
  SamplingParams sampling;
  Speculation speculation = Speculation::kNone;
  // Logprobs of each answer token, and of that many best ones beside it (0 to 20); -1: none. They are the log-softmax
  // of the model's own logits (soft-capped where the model does so), before temperature, penalties, bias and
  // suppression.
  int top_logprobs = -1;
  // The same for the prompt's tokens. All of the prompt is then computed, whatever the prefix cache holds.
  bool prompt_logprobs = false;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled };

using SequenceId = int64_t;

// What a step did for one sequence.
struct SequenceUpdate {
  SequenceId id = 0;
  std::span<const int32_t> tokens;  // new answer tokens, valid until the next Step
  FinishReason finish = FinishReason::kNone;
  std::span<const TokenLogprobs> logprobs{};  // [tokens.size()] when asked for, else empty; valid as long as tokens
  // Once, with the first update: [prompt - 1], of the prompt's second token and those behind it.
  std::span<const TokenLogprobs> prompt_logprobs{};
  int64_t cached_prompt_tokens = 0;  // of the prompt, taken from the prefix cache
};

struct SpeculationStats {
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t steps = 0;  // decode steps, with a draft or without
};

// The engine's state, and what it has done since it began.
struct EngineCounters {
  int64_t running = 0, waiting = 0, paused = 0;
  // Blocks of each K/V group: held by sequences; kept for later ones alone, given up when room is needed; in all.
  std::array<int64_t, kKvGroups> used_blocks{}, cached_blocks{}, total_blocks{};
  int64_t preemptions = 0;
  int64_t prefix_hit_tokens = 0;  // taken from the prefix cache instead of being computed
  int64_t prompt_tokens = 0;      // computed, those that had to be computed again included
  int64_t decode_tokens = 0;      // chosen
  SpeculationStats speculation;
};

class Scheduler;
struct Sequence;
struct StepRows;
struct StepSampling;

// Tokens in, tokens out: batches all running sequences into each step, prompts in chunks. More sequences than the K/V
// cache has room for wait, the earliest first; when those that run grow out of it, the latest has to wait and is
// computed again. Deterministic: a sequence's tokens do not depend on its neighbours, the chunking, speculation,
// waiting or the prefix cache. Not thread-safe.
class Engine {
 public:
  // Allocates the backend's K/V. The backend must outlive the engine.
  Engine(Backend& backend, const EngineOptions& options);
  ~Engine();

  // Queues a sequence. Throws Error kInvalidArgument: empty prompt, an id out of range, a prompt that does not fit the
  // context with at least one answer token, max_new_tokens, top_logprobs, sampling values.
  SequenceId Add(SequenceRequest request);
  // Drops a sequence; no further update comes. Unknown or finished ids are ignored.
  void Cancel(SequenceId id);
  // Takes a sequence out of the steps until Resume, which lets it in again by its time of arrival. It holds no place
  // and no blocks meanwhile; what the prefix cache has lost of it by then is computed again. Unknown or finished ids
  // are ignored.
  void Pause(SequenceId id);
  void Resume(SequenceId id);
  // Whether a sequence has been added and has not finished, been cancelled or been dropped.
  bool Has(SequenceId id) const;

  // Nothing runs or waits; what is paused does not count.
  bool idle() const;
  // Runs one step and reports every sequence that gained tokens or finished. Valid until the next call. When the
  // backend throws, every sequence of the step is dropped and the error passes on.
  std::span<const SequenceUpdate> Step();

  // Prompt tokens of a running sequence that are in the cache; for progress. 0 for unknown ids.
  int64_t CachedTokens(SequenceId id) const;
  SpeculationStats Stats(SequenceId id) const;  // also of the sequences reported finished by the last Step
  EngineCounters counters() const;
  // As given, with the defaults filled in and the context that fits the cache.
  const EngineOptions& options() const { return options_; }

 private:
  void Forward();
  void Collect();
  void TakeRows(Sequence& sequence, std::span<float>& logits, std::span<const int32_t>& best);
  const Sequence* Find(SequenceId id) const;

  Backend& backend_;
  EngineOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  SequenceId next_id_ = 1;
  std::vector<std::unique_ptr<Sequence>> finished_;  // by the last Step
  std::vector<SequenceUpdate> updates_;              // of the last Step
  std::unique_ptr<StepRows> step_;
  std::unique_ptr<StepSampling> sampling_;
  std::vector<float> logits_;  // [logit rows of the largest step so far, vocab]
  std::vector<int32_t> best_;  // [logit rows] the choices when the backend makes them, else empty
  EngineCounters counters_;    // what adds up here
};

}  // namespace lapidary
