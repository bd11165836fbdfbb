#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "chat/chat_parser.h"

namespace lapidary {

struct AnswerStyle {
  bool show_thought = false;
  bool dim_thought = false;     // by a terminal's escape codes
  bool plain_controls = false;  // control characters of the model become U+FFFD: they are not for this terminal
};

// Writes an answer for people to read, piece by piece.
class AnswerPrinter {
 public:
  AnswerPrinter(const AnswerStyle& style, std::function<void(std::string_view)> print)
      : style_(style), print_(std::move(print)) {}

  void Add(const ChatEvent& event);
  // Ends the answer's line, and a dim stretch.
  void Finish();

 private:
  void EndThought();

  AnswerStyle style_;
  std::function<void(std::string_view)> print_;
  bool in_thought_ = false;
};

// `text` with the control characters but tab and line end replaced by U+FFFD.
std::string WithoutControls(std::string_view text);

}  // namespace lapidary
