#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "kv/block_table.h"

namespace lapidary {

// Runs sequences on a backend without an engine: every step is the caller's. Not thread-safe.
class DirectRunner {
 public:
  struct Size {
    int sequences = 1;
    int64_t depth = 0;   // tokens of each sequence that Fill takes at most
    int64_t beyond = 0;  // tokens that Run and Decode add to that at most
    int64_t step_tokens = 256;
  };

  // Allocates the backend's K/V, which must not have been done before.
  DirectRunner(Backend& backend, const Size& size, DType kv_type);

  // Runs `ids` as the next tokens of a sequence, in steps, without logits; gives back blocks out of the window.
  void Fill(int sequence, std::span<const int32_t> ids);
  // Runs `ids`, at most step_tokens, as the next tokens of a sequence in one step. Returns logits [logit_rows, vocab]
  // of the last rows, valid until the next call. With taps no row stops early.
  std::span<float> Run(int sequence, std::span<const int32_t> ids, int64_t logit_rows, TapSink* taps);
  // One step of one token for each of the first ids.size() sequences; each id becomes the best that follows it.
  void Decode(std::span<int32_t> ids);
  // Where the time of such a step goes; empty where the backend cannot tell.
  std::vector<KernelTime> TimeDecode(std::span<const int32_t> ids);
  // Forgets positions >= end of a sequence; `end` is 0 or not less than what Fill took.
  void Truncate(int sequence, int64_t end);

  // Of all steps since the last call: how many, and the floating-point operations they executed.
  struct Work {
    int64_t steps = 0;
    double flops = 0;
  };
  Work TakeWork();

 private:
  void Append(int sequence, std::span<const int32_t> ids, int64_t logit_rows);
  std::span<float> Forward(TapSink* taps);
  // Runs the step that is laid out through `forward`, and clears it.
  template <typename F>
  void Step(bool stop_early, const F& forward);

  Backend& backend_;
  Size size_;
  BlockPools pools_;
  std::vector<SequenceBlocks> blocks_;  // [sequences]
  std::vector<int64_t> cached_;         // [sequences]
  // Of the step being laid out.
  std::vector<int32_t> ids_, positions_, sequences_, logit_rows_;
  std::vector<std::array<BlockTableView, kKvGroups>> tables_;
  std::vector<float> logits_;
  Work work_;
};

// `count` token ids in [10, vocab), always the same for the same seed: past the special tokens.
std::vector<int32_t> ArbitraryIds(int64_t count, int64_t vocab, uint64_t seed);

}  // namespace lapidary
