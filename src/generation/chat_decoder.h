#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_parser.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

// An answer's token ids -> events: IncrementalDecoder and ChatParser in one, told apart by token, so that text which
// only looks like a marker stays text. With a tokenizer that does not know <turn|> as a special token, markers are
// looked for in the text. Not thread-safe; the tokenizer must outlive it.
class ChatDecoder {
 public:
  ChatDecoder(const Tokenizer& tokenizer, const ChatParserOptions& options);

  // What ForceToolCall returned, before the first id.
  std::vector<ChatEvent> PushForced(std::string_view opening);
  // An id outside the tokenizer's range, as tables may be padded, has no text.
  std::vector<ChatEvent> Push(int32_t id);
  std::vector<ChatEvent> Finish();

  bool done() const { return parser_.done(); }
  const ParsedAnswer& answer() const { return parser_.answer(); }

 private:
  const Tokenizer* tokenizer_;
  bool by_token_;
  IncrementalDecoder decoder_;
  ChatParser parser_;
};

}  // namespace lapidary
