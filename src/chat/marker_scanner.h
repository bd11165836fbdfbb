#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

// The special tokens that mean something in an answer.
enum class AnswerMarker : uint8_t {
  kNone,  // text
  kTurnClose,
  kChannelOpen,
  kChannelClose,
  kCallOpen,
  kCallClose,
  kResponseOpen,
  kQuote,
};

// The marker that `text` is, or kNone.
AnswerMarker MarkerOf(std::string_view text);

struct ScannedText {
  AnswerMarker marker = AnswerMarker::kNone;
  std::string text;  // of a marker too

  bool operator==(const ScannedText&) const = default;
};

// Text cut anywhere -> markers and the text between them. Holds back what may be the beginning of a marker.
class MarkerScanner {
 public:
  std::vector<ScannedText> Push(std::string_view text);
  // What was held back, as text.
  std::string Finish();

 private:
  std::string held_;
};

}  // namespace lapidary
