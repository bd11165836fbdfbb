#include "generation/chat_prompt.h"

#include <optional>
#include <string>

namespace lapidary {

std::vector<int32_t> EncodePrompt(const Tokenizer& tokenizer, const ChatPrompt& prompt, SpecialText special) {
  if (special == SpecialText::kMatch) return tokenizer.Encode(prompt.Text());
  std::vector<int32_t> ids;
  std::string text;  // between markers: one text to the tokenizer, whoever wrote its parts
  const auto flush = [&] {
    const std::vector<int32_t> more = tokenizer.Encode(text, {.match_special = false});
    ids.insert(ids.end(), more.begin(), more.end());
    text.clear();
  };
  for (const PromptPiece& piece : prompt.pieces) {
    const std::optional<int32_t> id = piece.is_marker ? tokenizer.Find(piece.text) : std::nullopt;
    if (!id) {
      text += piece.text;
      continue;
    }
    flush();
    ids.push_back(*id);
  }
  flush();
  return ids;
}

}  // namespace lapidary
