#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "engine/engine.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

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
  // After each step: prompt tokens in the cache, of how many. Returning false stops, also while the prompt is read.
  std::function<bool(int64_t cached, int64_t prompt_tokens)> on_step{};
};

struct GenerateTimings {
  double prefill_s = 0, decode_s = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;  // chosen after the first, which the prompt's last row gives
};

struct GenerateResult {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;  // answer, without the ending eos; with the tokens of a stop text
  std::string text;          // answer up to a stop text
  FinishReason finish = FinishReason::kNone;
  GenerateTimings timings;
  SpeculationStats speculation;
};

// How a request samples: its own values, then those of the model's generation_config.json, then greedy. There do_sample
// false means greedy, and true without a temperature means 1, as in transformers. Ids to suppress that lie outside the
// vocabulary are dropped.
SamplingParams ResolveSampling(const GenerateOptions& options, const GenerationConfig& defaults, int64_t vocab);

// Text in, text out, for one text at a time. `on_text` gets pieces whose concatenation is the result's text: no half
// character, no part of a stop text. Returning false stops. The backend must outlive it. Not thread-safe.
class TextGenerator {
 public:
  // Reads tokenizer.json (optional: without it only ids work) and generation_config.json from `folder`. Throws Error
  // kCorruptFile when the vocabulary is larger than the model's table.
  TextGenerator(const std::string& folder, Backend& backend, const EngineOptions& options);
  ~TextGenerator();

  using OnText = std::function<bool(std::string_view)>;

  // Both throw what Engine::Add and Backend::Forward throw; kInvalidArgument for an empty stop text; kNotFound where a
  // tokenizer is needed and there is none.
  //
  // The text, which must not be empty, is completed as it stands after <bos>. A text that already begins with <bos> is
  // not given another.
  GenerateResult Generate(std::string_view prompt, const GenerateOptions& options, const OnText& on_text);
  // Ids are taken as they are.
  GenerateResult GenerateFromIds(std::vector<int32_t> prompt, const GenerateOptions& options, const OnText& on_text);

  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

 private:
  void CheckLength(std::string_view prompt) const;
  SequenceRequest MakeRequest(std::vector<int32_t> prompt, const GenerateOptions& options) const;

  Backend& backend_;
  std::string folder_;
  std::optional<Tokenizer> tokenizer_;
  size_t longest_piece_bytes_ = 1;  // of any token
  GenerationConfig defaults_;
  Engine engine_;
};

}  // namespace lapidary
