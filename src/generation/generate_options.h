#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "model/config.h"
#include "sampling/sampler.h"

namespace lapidary {

struct GenerateOptions {
  int64_t max_new_tokens = -1;  // -1: until the context is full
  // Unset: the model's generation_config.json, then greedy.
  std::optional<double> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<int64_t> top_k{};
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int32_t, double>> logit_bias{};
  std::optional<uint64_t> seed{};   // unset: a fresh one
  std::vector<std::string> stop{};  // the text ends before the first of these
  bool ignore_eos = false;
  Speculation speculation = Speculation::kNone;
  // Of TextGenerator, after each step: prompt tokens in the cache, of how many. Returning false stops, also while the
  // prompt is read.
  std::function<bool(int64_t cached, int64_t prompt_tokens)> on_step{};
};

// How a request samples: its own values, then those of the model's generation_config.json, then greedy. There do_sample
// false means greedy, and true without a temperature means 1, as in transformers. Ids to suppress that lie outside the
// vocabulary are dropped.
SamplingParams ResolveSampling(const GenerateOptions& options, const GenerationConfig& defaults, int64_t vocab);

}  // namespace lapidary
