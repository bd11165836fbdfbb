#include "chat/marker_scanner.h"

#include <array>
#include <utility>

#include "chat/markers.h"

namespace lapidary {
namespace {

constexpr std::array<std::pair<std::string_view, AnswerMarker>, 7> kMarkers = {{
    {marker::kTurnClose, AnswerMarker::kTurnClose},
    {marker::kChannelOpen, AnswerMarker::kChannelOpen},
    {marker::kChannelClose, AnswerMarker::kChannelClose},
    {marker::kCallOpen, AnswerMarker::kCallOpen},
    {marker::kCallClose, AnswerMarker::kCallClose},
    {marker::kResponseOpen, AnswerMarker::kResponseOpen},
    {marker::kQuote, AnswerMarker::kQuote},
}};

bool MayBecomeMarker(std::string_view text) {
  for (const auto& [marker, kind] : kMarkers) {
    if (marker.starts_with(text)) return true;
  }
  return false;
}

}  // namespace

AnswerMarker MarkerOf(std::string_view text) {
  for (const auto& [marker, kind] : kMarkers) {
    if (marker == text) return kind;
  }
  return AnswerMarker::kNone;
}

std::vector<ScannedText> MarkerScanner::Push(std::string_view text) {
  std::vector<ScannedText> out;
  const auto text_piece = [&]() -> std::string& {
    if (out.empty() || out.back().marker != AnswerMarker::kNone) out.emplace_back();
    return out.back().text;
  };
  for (const char c : text) {
    // Every marker begins with '<', and none has another '<' inside.
    if (!held_.empty() && !MayBecomeMarker(held_ + c)) text_piece() += std::exchange(held_, {});
    if (held_.empty() && c != '<') {
      text_piece() += c;
      continue;
    }
    held_ += c;
    if (const AnswerMarker marker = MarkerOf(held_); marker != AnswerMarker::kNone) {
      out.push_back({marker, std::exchange(held_, {})});
    }
  }
  return out;
}

std::string MarkerScanner::Finish() { return std::exchange(held_, {}); }

}  // namespace lapidary
