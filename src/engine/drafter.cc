#include "engine/drafter.h"

#include <algorithm>

namespace lapidary {
namespace {

constexpr int kPatience = 2;      // failed drafts before pauses begin; each further failure doubles the pause
constexpr int kLongestPause = 5;  // 2^5 steps

}  // namespace

uint64_t NgramDrafter::Key(int64_t end, int n) const {
  uint64_t key = 0xd1b54a32d192ed03u * static_cast<uint64_t>(n);
  for (int64_t i = end - n; i < end; ++i) {
    key = (key ^ static_cast<uint32_t>(text_[static_cast<size_t>(i)])) * 0x9e3779b97f4a7c15u;
    key ^= key >> 32;
  }
  return key;
}

void NgramDrafter::Append(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    // The n-grams that end before this token have a continuation from now on, so they may be found.
    const auto end = static_cast<int64_t>(text_.size());
    for (int n = kMinGram; n <= kMaxGram; ++n) {
      if (end >= n) places_.insert_or_assign(Key(end, n), static_cast<int32_t>(end));
    }
    text_.push_back(token);
  }
}

int64_t NgramDrafter::Continuation(int n) const {
  const auto end = static_cast<int64_t>(text_.size());
  if (end < n) return -1;
  const auto found = places_.find(Key(end, n));
  if (found == places_.end()) return -1;
  const int64_t place = found->second;
  // Different n-grams may share a key.
  return std::equal(text_.end() - n, text_.end(), text_.begin() + place - n) ? place : -1;
}

std::span<const int32_t> NgramDrafter::Propose(int64_t limit) {
  draft_.clear();
  if (limit <= 0) return {};
  if (pause_ > 0) {
    --pause_;
    return {};
  }
  int64_t place = -1;
  for (int n = kMaxGram; n >= kMinGram && place < 0; --n) place = Continuation(n);
  if (place < 0) return {};
  const auto size = static_cast<int64_t>(text_.size());
  for (int64_t i = 0; i < std::min(limit, length_); ++i, ++place) {
    // Past its end the text goes on with the draft: a short period repeats.
    draft_.push_back(place < size ? text_[static_cast<size_t>(place)] : draft_[static_cast<size_t>(place - size)]);
  }
  return draft_;
}

void NgramDrafter::Report(int64_t drafted, int64_t accepted) {
  if (drafted == 0) return;
  if (accepted == 0) {
    length_ = std::max<int64_t>(1, length_ / 2);
    if (++failures_ > kPatience) pause_ = int64_t{1} << std::min(failures_ - kPatience, kLongestPause);
    return;
  }
  failures_ = 0;
  length_ = accepted == drafted ? std::min<int64_t>(kMaxDraft, 2 * length_) : accepted + 1;
}

}  // namespace lapidary
