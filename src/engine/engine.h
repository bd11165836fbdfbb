#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "kv/block_table.h"
#include "sampling/sampler.h"

namespace lapidary {

struct EngineOptions {
  int64_t max_context = 0;    // tokens a sequence may reach, prompt and answer; 0: max_position_embeddings
  int max_sequences = 1;      // running at the same time; more wait
  int64_t step_tokens = 256;  // rows of one step at most (prefill chunk)
  DType kv_type = DType::kF32;
};

enum class Speculation : uint8_t { kNone, kNgram };

struct SequenceRequest {
  std::vector<int32_t> prompt;   // not empty; ids in [0, vocab)
  int64_t max_new_tokens = -1;   // -1: until the context is full
  std::vector<int32_t> eos_ids;  // a chosen one ends the sequence and is not part of the answer
  SamplingParams sampling;
  Speculation speculation = Speculation::kNone;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled };

using SequenceId = int64_t;

// What a step did for one sequence.
struct SequenceUpdate {
  SequenceId id = 0;
  std::span<const int32_t> tokens;  // new answer tokens, valid until the next Step
  FinishReason finish = FinishReason::kNone;
};

struct SpeculationStats {
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t steps = 0;  // decode steps, with a draft or without
};

// Tokens in, tokens out: batches all running sequences into each step, prompts in chunks. Deterministic: a sequence's
// tokens do not depend on its neighbours, the chunking, or speculation. Not thread-safe.
class Engine {
 public:
  // Allocates the backend's K/V. The backend must outlive the engine.
  Engine(Backend& backend, const EngineOptions& options);
  ~Engine();

  // Queues a sequence. Throws Error kInvalidArgument: empty prompt, an id out of range, a prompt that does not fit the
  // context with at least one answer token, max_new_tokens 0 or below -1, sampling values.
  SequenceId Add(SequenceRequest request);
  // Drops a sequence; no further update comes. Unknown or finished ids are ignored.
  void Cancel(SequenceId id);

  bool idle() const;
  // Runs one step and reports every sequence that gained tokens or finished. Valid until the next call. When the
  // backend throws, every sequence of the step is dropped and the error passes on.
  std::span<const SequenceUpdate> Step();

  // Prompt tokens of a running sequence that are in the cache; for progress. 0 for unknown ids.
  int64_t CachedTokens(SequenceId id) const;
  SpeculationStats Stats(SequenceId id) const;  // also of the sequences reported finished by the last Step
  const EngineOptions& options() const { return options_; }

 private:
  struct Sequence;
  struct Batch;

  void Admit();
  void Plan();
  void PlanRows(Sequence& sequence, int64_t rows);
  void Collect();
  void DropStep();
  const Sequence* Find(SequenceId id) const;

  Backend& backend_;
  EngineOptions options_;
  std::unique_ptr<BlockPools> pools_;
  std::array<int64_t, kKvGroups> reserved_{};  // blocks promised to running sequences, never more than the pools have
  SequenceId next_id_ = 1;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;   // in order of admission
  std::vector<std::unique_ptr<Sequence>> finished_;  // by the last Step
  std::vector<SequenceUpdate> updates_;              // of the last Step
  std::unique_ptr<Batch> batch_;
  std::vector<float> logits_;  // [logit rows of the largest step so far, vocab]
};

}  // namespace lapidary
