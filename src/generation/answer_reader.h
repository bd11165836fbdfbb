#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_parser.h"
#include "generation/answer_text.h"
#include "generation/chat_decoder.h"
#include "generation/stop_filter.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

struct AnswerReaderOptions {
  // Set: the answer is taken apart as a chat turn. Unset: all of it is content.
  std::optional<ChatParserOptions> chat{};
  std::string forced_opening{};     // of a tool call, as ForceToolCall returned it; part of the answer
  bool one_call = false;            // the answer ends with its first complete call
  std::vector<std::string> stop{};  // the content ends before the first of these; thoughts and calls are not searched
};

// Token ids of one answer -> events, up to where it ends by itself: at a stop text, after one call, at the end of the
// turn. Not thread-safe; the tokenizer must outlive it.
class AnswerReader {
 public:
  // Without a tokenizer there are no events. Throws Error kInvalidArgument: what StopFilter throws; chat without a
  // tokenizer.
  AnswerReader(const Tokenizer* tokenizer, const AnswerReaderOptions& options);

  // Neighbouring events of one kind may come apart. The forced opening comes with the first id.
  std::vector<ChatEvent> Push(int32_t id);
  std::vector<ChatEvent> Finish();

  bool stopped() const { return stopped_; }
  int64_t complete_calls() const { return complete_calls_; }
  // Ids that belong to the thought, its markers included.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void Take(std::vector<ChatEvent> events, std::vector<ChatEvent>& out);
  void TakeContent(ChatEvent event, std::vector<ChatEvent>& out);
  void FlushContent(std::vector<ChatEvent>& out);
  void CountReasoning(int32_t id);

  std::optional<AnswerText> text_;      // plain
  std::optional<ChatDecoder> decoder_;  // chat
  StopFilter stops_;                    // of the chat's content
  std::string forced_opening_;
  bool one_call_ = false;
  bool stopped_ = false;
  bool in_reasoning_ = false;
  std::optional<int32_t> reasoning_begins_, reasoning_ends_;  // marker ids
  int64_t complete_calls_ = 0;
  int64_t reasoning_tokens_ = 0;
};

}  // namespace lapidary
