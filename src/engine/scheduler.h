#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "backends/backend.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "kv/block_table.h"
#include "kv/prefix_cache.h"

namespace lapidary {

// Who runs, how many rows of the next step each gets, and who holds which blocks. Whoever came later gives way: a
// sequence that finds no free block takes those of the latest arrival, which waits and is computed again, and the
// latest waits for blocks. The earliest always goes on, so that all come to an end. Those that are paused hold nothing.
// Not thread-safe.
class Scheduler {
 public:
  // `options` are complete. Allocates the backend's K/V.
  Scheduler(Backend& backend, const EngineOptions& options);

  // Ids rise with each call.
  void Add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  void Cancel(SequenceId id);
  void Pause(SequenceId id);
  void Resume(SequenceId id);
  bool Has(SequenceId id) const;

  // Lets waiting sequences in, and sets `rows` and `draft` of those that run; their blocks cover the rows. Decoding
  // sequences come first, prompts share what is left.
  void Plan();
  // The rows of a step are computed, and `cached` counts them.
  void Settle(Sequence& sequence);
  // Takes the sequences that have finished out of those that run.
  std::vector<std::unique_ptr<Sequence>> TakeFinished();
  // A step failed: what its rows wrote is undefined, and its sequences are dropped.
  void DropStep();

  BlockPools& pools() { return pools_; }
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // In order of arrival.
  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
  // Adds what the scheduler knows.
  void Count(EngineCounters& counters) const;

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  void Admit();
  bool HasRoom(const Sequence& sequence, const PrefixCache::Match& match) const;
  void Start(Sequence& sequence, const PrefixCache::Match& match);
  // Makes room for positions [0, end) of running_[index], at the cost of later ones.
  bool TakeBlocks(size_t index, int64_t end);
  void PreemptLatest();
  void PlanDecodes(int64_t draft_rows);
  void PlanPrompts(int64_t rows);
  // Gives up all blocks; the cache keeps what it can.
  void Leave(Sequence& sequence);
  // The same, for a sequence that will be computed again.
  void SetBack(Sequence& sequence);

  Backend& backend_;
  const EngineOptions& options_;
  BlockPools pools_;
  std::optional<PrefixCache> cache_;
  std::deque<std::unique_ptr<Sequence>> waiting_;  // in order of arrival
  Sequences running_;                              // in order of arrival
  Sequences paused_;
  int64_t preemptions_ = 0, prefix_hit_tokens_ = 0;
};

}  // namespace lapidary
