#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

struct ChatParserOptions {
  bool starts_in_reasoning = false;  // as the ChatPrompt says
  bool tools_offered = true;         // false: the markers of calls are text
  bool ends_with_turn = true;        // false: what ends an answer is passed over
};

enum class ChatEventKind : uint8_t {
  kReasoning,      // text: more of the thought
  kContent,        // text: more of the answer
  kCallName,       // text: a call begins, with its whole name
  kCallArguments,  // text: more of the call's arguments, as JSON
  kCallEnd,        // the call is complete: its arguments are one JSON object
};

struct ChatEvent {
  ChatEventKind kind = ChatEventKind::kContent;
  size_t call = 0;   // which call, counted from 0; of the kCall kinds
  std::string text;  // UTF-8, whole characters; empty only for kCallEnd

  bool operator==(const ChatEvent&) const = default;
};

struct ParsedToolCall {
  std::string name;
  std::string arguments;  // JSON object as text, equal to the joined kCallArguments
  bool complete = false;  // false: still open, or cut off; what was open has been closed then
};

// All that has been given out as events.
struct ParsedAnswer {
  std::string content, reasoning;
  std::vector<ParsedToolCall> tool_calls;
};

// Takes a model's answer apart while it is written: thought, content, tool calls. What comes out does not depend on how
// the text is cut, not even inside characters or markers, apart from the cuts between events of one kind. Text that may
// become a marker is held back until it is certain. Bytes that are not UTF-8 become U+FFFD. Not thread-safe.
//
// - The thought's label ("thought" and a line end) and the line end before its closing marker are not part of it.
// - A call opens with its marker and "call:"; the marker alone is text. Its arguments are read leniently: quotes that
// are
//   missing, stray or missing brackets and values without quotes give the likeliest JSON, never a failure. Of a key
//   that stands twice in one object the first counts.
// - The end of the turn, or the opening of a tool's response (when tools are offered), ends the answer, done(), unless
//   told to go on.
class ChatParser {
 public:
  explicit ChatParser(const ChatParserOptions& options);
  ~ChatParser();
  ChatParser(ChatParser&&) noexcept;
  ChatParser& operator=(ChatParser&&) noexcept;

  // More of the answer, decoded with its special tokens. What looks like a marker is one.
  std::vector<ChatEvent> Push(std::string_view text);
  // For callers that see tokens, and more exact: `text` is what one token says, and only a special token is a marker. A
  // special token without a meaning where it stands is passed over. See generation/chat_decoder.h.
  std::vector<ChatEvent> PushToken(std::string_view text, bool is_special);
  // No more comes: gives out what was held back, and closes a call that is open.
  std::vector<ChatEvent> Finish();

  // The answer has ended by itself. What is pushed from then on is ignored.
  bool done() const;
  const ParsedAnswer& answer() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lapidary
