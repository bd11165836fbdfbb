#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "generation/generate_options.h"
#include "model/model_plan.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

// What stands between text and the engine for one model folder: tokenizer, sampling defaults, ends of text. Immutable
// after construction, any thread may call.
class TextModel {
 public:
  // Reads tokenizer.json (optional: without it only ids work) and generation_config.json from `folder`. Throws Error
  // kCorruptFile when the vocabulary is larger than the model's table.
  TextModel(const std::string& folder, const ModelPlan& plan);

  const std::string& folder() const { return folder_; }
  int64_t vocab() const { return vocab_; }
  bool has_per_layer_inputs() const { return config_.hidden_size_per_layer_input > 0; }
  // nullptr without one.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  // Throws Error kNotFound without one, naming what it is wanted for: "to read a text prompt".
  const Tokenizer& RequireTokenizer(const char* wanted_for) const;

  // The ids of a text that is completed as it stands after <bos>. A text that already begins with <bos> is not given
  // another. Throws Error kInvalidArgument: an empty text, or one so long that whatever its tokens are they cannot fit
  // `context`, which is found before it is cut into tokens.
  std::vector<int32_t> EncodePrompt(std::string_view text, int64_t context) const;

  // Throws Error kNotFound for stop texts without a tokenizer.
  SequenceRequest MakeRequest(std::vector<int32_t> prompt, const GenerateOptions& options) const;

 private:
  void CheckLength(std::string_view prompt, int64_t context) const;

  std::string folder_;
  Config config_;
  int64_t vocab_;
  std::optional<Tokenizer> tokenizer_;
  size_t longest_piece_bytes_ = 1;  // of any token
  GenerationConfig defaults_;
};

}  // namespace lapidary
