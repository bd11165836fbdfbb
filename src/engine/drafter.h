#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace lapidary {

// Prompt lookup: proposes what followed the latest earlier occurrence of the text's last few tokens. Indexes every
// token once, so that a proposal costs the same for any length. Not thread-safe.
class NgramDrafter {
 public:
  static constexpr int kMaxDraft = 7;  // with the certain token, 8 rows of a step

  // Takes tokens into the text: the prompt first, then each chosen token.
  void Append(std::span<const int32_t> tokens);

  // At most `limit` tokens that may come next; empty without an earlier occurrence, or while drafts keep failing.
  // Valid until the next call.
  std::span<const int32_t> Propose(int64_t limit);

  // What became of the last proposal that was verified: adapts the length of the next ones.
  void Report(int64_t drafted, int64_t accepted);

 private:
  static constexpr int kMinGram = 2, kMaxGram = 3;

  // The place after the latest earlier occurrence of the text's last `n` tokens, or -1.
  int64_t Continuation(int n) const;
  // Key of the `n` tokens that end before `end`.
  uint64_t Key(int64_t end, int n) const;

  std::vector<int32_t> text_;
  std::unordered_map<uint64_t, int32_t> places_;  // key of an n-gram -> the place after its latest occurrence
  std::vector<int32_t> draft_;
  int64_t length_ = 4;  // of the next draft
  int failures_ = 0;    // drafts in a row of which nothing was accepted
  int64_t pause_ = 0;   // proposals to skip
};

}  // namespace lapidary
