#include "chat/prompt.h"

namespace lapidary {

std::string ChatPrompt::Text() const {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

void ChatPrompt::AddMarker(std::string_view marker) { pieces.push_back({true, std::string(marker)}); }

void ChatPrompt::AddText(std::string_view text) {
  if (text.empty()) return;
  if (pieces.empty() || pieces.back().is_marker) pieces.push_back({});
  pieces.back().text += text;
}

}  // namespace lapidary
