#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "engine/engine.h"
#include "generation/generate_options.h"
#include "generation/text_model.h"

namespace lapidary {

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

  const Tokenizer* tokenizer() const { return model_.tokenizer(); }

 private:
  TextModel model_;
  Engine engine_;
};

}  // namespace lapidary
