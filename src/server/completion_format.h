#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/logprobs_json.h"

namespace lapidary {

struct CompletionFormatOptions {
  AnswerHeader header;
  const Tokenizer* tokenizer = nullptr;
  size_t choices_per_prompt = 1;
  bool logprobs = false, top_logprobs = false;
  bool token_ids = false;
};

// A prompt that is shown before its answers.
struct EchoedPrompt {
  std::string text;
  std::vector<int32_t> ids;
};

// text_completion, streamed or whole.
class CompletionFormat final : public AnswerFormat {
 public:
  // `echo`: one for each prompt, or none.
  CompletionFormat(CompletionFormatOptions options, size_t choices, std::vector<EchoedPrompt> echo);

  void Chunks(size_t index, const AnswerDelta& delta, std::vector<OrderedJson>& out) override;
  void Take(size_t choice, const AnswerDelta& delta) override;
  OrderedJson Whole(const Usage& usage) override;
  OrderedJson EmptyChunk() const override;

 private:
  struct Choice {
    explicit Choice(const CompletionFormatOptions& options) : logprobs(options.tokenizer, options.top_logprobs) {}
    bool begun = false;
    CompletionLogprobs logprobs;
    AnswerDelta all;  // when collected
  };

  OrderedJson Entry(size_t index, const AnswerDelta& delta);
  OrderedJson Logprobs(Choice& choice, const AnswerDelta& delta, const EchoedPrompt* prompt);

  CompletionFormatOptions options_;
  std::vector<EchoedPrompt> echo_;
  std::vector<Choice> choices_;
};

}  // namespace lapidary
