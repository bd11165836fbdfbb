#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lapidary {

struct SamplingParams {
  double temperature = 0.0;         // 0: greedy
  int64_t top_k = 0;                // 0: off
  double top_p = 1.0;               // in (0, 1]
  double min_p = 0.0;               // in [0, 1]
  double repetition_penalty = 1.0;  // > 0; over prompt and answer, as transformers does
  double presence_penalty = 0.0;    // over the answer, as OpenAI defines
  double frequency_penalty = 0.0;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::vector<int32_t> suppress_tokens;  // never chosen, greedy included
  uint64_t seed = 0;
};

// An id whose logit penalties change: how often the answer has it where presence or frequency penalty counts, and
// whether prompt or answer have it where the repetition penalty counts.
struct TouchedId {
  int32_t id = 0;
  int32_t answer_count = 0;
  bool seen = false;
};

// Whether the choice is the best of the model's own logits.
bool IsPlainGreedy(const SamplingParams& params);

// Throws Error kInvalidArgument naming the field, found and wanted. `vocab` bounds the ids.
void CheckSamplingParams(const SamplingParams& params, int64_t vocab);

// Chooses tokens for one sequence. The draw for the n-th answer token depends on (seed, n) alone, so a draft that is
// verified by drawing at each of its positions gives the same text as drawing one at a time. Not thread-safe.
class Sampler {
 public:
  // `prompt` counts for the repetition penalty.
  Sampler(const SamplingParams& params, std::span<const int32_t> prompt, int64_t vocab);

  // The choice for the next answer token from `logits` [vocab], which are changed in place. Ties go to the lower id.
  // Does not advance: the caller then calls Accept with the token that was really taken.
  int32_t Choose(std::span<float> logits);
  // Takes a token into the history.
  void Accept(int32_t token);
  int64_t accepted() const { return accepted_; }
  // For whoever chooses elsewhere: whether the history matters, and what of it does.
  bool counts_history() const { return !answer_count_.empty() || !seen_.empty(); }
  void AppendTouched(std::vector<TouchedId>& out) const;
  const SamplingParams& params() const { return params_; }

 private:
  void ApplyPenalties(std::span<float> logits) const;
  int32_t Draw(std::span<const float> logits);
  // These fill candidates_ with what may be drawn; `top` is the largest logit.
  void CollectTopK(std::span<const float> logits);
  void CollectAbove(std::span<const float> logits, double threshold);
  void CutToTopP(std::span<const float> logits, float top);
  int32_t DrawCandidate(float top);
  // exp((logit - top) / temperature)
  double Weight(float logit, float top) const;

  SamplingParams params_;
  int64_t accepted_ = 0;
  std::vector<int32_t> answer_count_;                  // [vocab] when a penalty needs it, else empty
  std::vector<bool> seen_;                             // [vocab] when the repetition penalty needs it, else empty
  std::vector<int32_t> touched_;                       // ids with answer_count_ or seen_ set, in order of first sight
  std::vector<std::pair<float, int32_t>> candidates_;  // scratch of Draw: (logit, id)
  std::vector<double> weights_;                        // scratch of Draw, beside candidates_
};

// The largest of `logits`, the lowest id among equals; NaNs are passed over. 0 when there is none.
int32_t Argmax(std::span<const float> logits);

// Uniform in [0, 1) from a counter-based generator: a pure function of its arguments.
double UniformDraw(uint64_t seed, uint64_t counter);

}  // namespace lapidary
