#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chat/ordered_json.h"
#include "sampling/logprobs.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

// A token as JSON shows it: its text; a lone byte of a longer character as "<0xEA>"; without a tokenizer
// "token_id:ID". Always UTF-8.
std::string TokenText(const Tokenizer* tokenizer, int32_t id);

// As in a chat completion's logprobs.content: [{token, logprob, bytes, top_logprobs}].
OrderedJson ChatLogprobs(const Tokenizer* tokenizer, std::span<const int32_t> ids,
                         std::span<const TokenLogprobs> logprobs);

// As in a completion's logprobs: {tokens, token_logprobs, top_logprobs, text_offset}, for one choice in pieces.
class CompletionLogprobs {
 public:
  // Without top logprobs wanted, that field is null.
  CompletionLogprobs(const Tokenizer* tokenizer, bool with_top);

  // The next tokens; `logprobs` may lack those of the first ones, as a text's first token has none.
  OrderedJson Next(std::span<const int32_t> ids, std::span<const TokenLogprobs> logprobs);

 private:
  const Tokenizer* tokenizer_;
  bool with_top_;
  int64_t offset_ = 0;  // characters of text before the next token; a character counts with its first byte
};

}  // namespace lapidary
