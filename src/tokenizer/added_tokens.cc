#include "tokenizer/added_tokens.h"

#include <utility>

#include "tokenizer/utf8.h"

namespace lapidary {
namespace {

bool StandsAlone(std::string_view before, std::string_view after) {
  return (before.empty() || !IsWordCharacter(LastCodePoint(before).value)) &&
         (after.empty() || !IsWordCharacter(FirstCodePoint(after).value));
}

size_t TrailingSpaceBytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const CodePoint last = LastCodePoint(text.substr(0, text.size() - bytes));
    if (!IsWhiteSpace(last.value)) break;
    bytes += last.length_bytes;
  }
  return bytes;
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const CodePoint first = FirstCodePoint(text.substr(bytes));
    if (!IsWhiteSpace(first.value)) break;
    bytes += first.length_bytes;
  }
  return bytes;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  roots_.fill(kNoNode);
  for (uint32_t token = 0; token < tokens_.size(); ++token) Insert(token);
}

void AddedTokenMatcher::Insert(uint32_t token) {
  uint32_t node = 0;
  for (const char byte : tokens_[token].content) {
    uint32_t next = Child(node, byte);
    if (next == kNoNode) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({kNoNode, nodes_[node].child, kNoNode, byte});
      nodes_[node].child = next;
      if (node == 0) roots_[static_cast<uint8_t>(byte)] = next;
    }
    node = next;
  }
  if (nodes_[node].token == kNoNode) nodes_[node].token = token;
}

uint32_t AddedTokenMatcher::Child(uint32_t node, char byte) const {
  if (node == 0) return roots_[static_cast<uint8_t>(byte)];
  uint32_t child = nodes_[node].child;
  while (child != kNoNode && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

uint32_t AddedTokenMatcher::LongestAt(std::string_view text) const {
  uint32_t longest = kNoNode;
  uint32_t node = 0;
  for (const char byte : text) {
    node = Child(node, byte);
    if (node == kNoNode) break;
    if (nodes_[node].token != kNoNode) longest = nodes_[node].token;
  }
  return longest;
}

std::vector<Stretch> AddedTokenMatcher::Split(std::string_view text, bool match_special) const {
  std::vector<Stretch> stretches;
  size_t given = 0;  // bytes of text in stretches
  for (size_t at = 0; at < text.size();) {
    if (roots_[static_cast<uint8_t>(text[at])] == kNoNode) {
      ++at;
      continue;
    }
    const uint32_t found = LongestAt(text.substr(at));
    if (found == kNoNode) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found];
    size_t begin = at;
    size_t end = at + token.content.size();
    at = end;
    if (token.special && !match_special) continue;
    if (token.single_word && !StandsAlone(text.substr(0, begin), text.substr(end))) continue;
    if (token.lstrip) begin = given < begin ? begin - TrailingSpaceBytes(text.substr(given, begin - given)) : given;
    if (token.rstrip) end += LeadingSpaceBytes(text.substr(end));
    if (begin >= end) continue;  // all of it is white space that the token before took
    if (given < begin) stretches.push_back({text.substr(given, begin - given), -1});
    stretches.push_back({text.substr(begin, end - begin), token.id});
    given = end;
  }
  if (given < text.size()) stretches.push_back({text.substr(given), -1});
  return stretches;
}

}  // namespace lapidary
