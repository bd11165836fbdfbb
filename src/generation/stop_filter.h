#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

// Cuts a streamed text before the stop text that is complete first, wherever the stream is cut into pieces. Holds back
// only what may be the beginning of a stop text.
class StopFilter {
 public:
  // Throws Error kInvalidArgument: an empty stop text, or one that begins inside a UTF-8 sequence.
  explicit StopFilter(std::vector<std::string> stops);

  // The text that is now certain to come before any stop text. Nothing more once stopped().
  std::string Push(std::string_view text);
  // What was held back, as no more text comes.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lapidary
