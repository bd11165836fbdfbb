#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

// A prompt in pieces: markers are special tokens that the template itself writes; text is everything else, from the
// template's own words to what users, tools and earlier answers say. A special token inside text is just text.
// generation/chat_prompt.h turns pieces into token ids.
struct PromptPiece {
  bool is_marker = false;
  std::string text;  // a marker: one special token as it stands in the vocabulary, e.g. "<|turn>"

  bool operator==(const PromptPiece&) const = default;
};

struct ChatPrompt {
  std::vector<PromptPiece> pieces;   // neighbouring texts are joined, none is empty
  bool starts_in_reasoning = false;  // the prompt ends inside the thought channel: for ChatParserOptions
  bool has_media = false;            // a marker stands for an image, a sound or a video

  // The whole prompt as the template prints it.
  std::string Text() const;

  void AddMarker(std::string_view marker);
  void AddText(std::string_view text);
};

}  // namespace lapidary
