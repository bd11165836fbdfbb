#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generation/stop_filter.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

// Token ids of one answer -> its text without special tokens, half characters and beginnings of stop texts held back.
// Not thread-safe; the tokenizer must outlive it.
class AnswerText {
 public:
  // Without a tokenizer there is no text. Throws what StopFilter throws.
  AnswerText(const Tokenizer* tokenizer, const std::vector<std::string>& stops);

  // An id that the tokenizer does not know, as tables may be padded, has no text.
  std::string Push(int32_t id);
  std::string Finish();
  bool stopped() const { return stops_.stopped(); }

 private:
  std::optional<IncrementalDecoder> decoder_;
  StopFilter stops_;
  int32_t known_ids_ = 0;
};

}  // namespace lapidary
