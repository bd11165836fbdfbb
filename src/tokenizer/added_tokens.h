#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // only between characters that are not of a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for after the normalizer, else in the raw text
  bool special = false;
};

// A stretch of text: an added token, or text between them.
struct Stretch {
  std::string_view text;
  int32_t id = -1;  // -1: text between added tokens
};

// Finds added tokens in a text, leftmost first, of those that begin at one place the longest. The rules for what a
// match takes along are those of `tokenizers` (tokenizer/added_vocabulary.rs).
class AddedTokenMatcher {
 public:
  // `tokens` have different contents, none empty.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  // Cuts valid UTF-8 into stretches, none of them empty text. Without `match_special` a special token stays text (and
  // still hides others that begin inside it).
  std::vector<Stretch> Split(std::string_view text, bool match_special) const;

 private:
  static constexpr uint32_t kNoNode = UINT32_MAX;
  struct Node {  // of the trie over bytes
    uint32_t child = kNoNode;
    uint32_t sibling = kNoNode;
    uint32_t token = kNoNode;  // in tokens_, of the content that ends here
    char byte = 0;
  };
  void Insert(uint32_t token);
  uint32_t Child(uint32_t node, char byte) const;
  // The longest token that `text` begins with, or kNoNode.
  uint32_t LongestAt(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;          // [0] is the root
  std::array<uint32_t, 256> roots_;  // the root's child by byte
};

}  // namespace lapidary
