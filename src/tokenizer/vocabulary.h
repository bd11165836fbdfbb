#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

inline uint64_t MixBits(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint32_t HashText(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  const char* at = text.data();
  size_t left = text.size();
  uint64_t hash = (left + 1) * 0xD6E8FEB86659FD93;
  uint64_t word = 0;
  for (; left >= 8; left -= 8, at += 8) {
    std::memcpy(&word, at, 8);
    hash = MixBits(hash ^ word, kMultiplier);
  }
  word = 0;
  if (left >= 4) {
    uint32_t low = 0, high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + left - 4, 4);
    word = static_cast<uint64_t>(high) << 32 | low;
  } else if (left > 0) {
    word = static_cast<uint8_t>(at[0]) | static_cast<uint8_t>(at[left / 2]) << 8 |
           static_cast<uint64_t>(static_cast<uint8_t>(at[left - 1])) << 16;
  }
  return static_cast<uint32_t>(MixBits(hash ^ word, kMultiplier) >> 16);
}

// Token texts in one arena, found by id or by text. Ids may have gaps.
class Vocabulary {
 public:
  enum class AddResult { kAdded, kTextTaken, kIdTaken };

  // Room for `tokens` tokens of `text_bytes` altogether, with ids in [0, id_limit).
  Vocabulary(size_t tokens, size_t text_bytes, int32_t id_limit);

  // `hash` is HashText(text); `id` is in [0, id_limit). No more tokens or bytes than the constructor was told.
  AddResult Add(std::string_view text, uint32_t hash, int32_t id);

  // The id of a text, or -1.
  int32_t Find(std::string_view text) const { return Find(text, HashText(text)); }
  int32_t Find(std::string_view text, uint32_t hash) const;
  // Asks for the cache line where Find(.., hash) begins.
  void Prefetch(uint32_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }

  bool Contains(int32_t id) const { return spans_[static_cast<size_t>(id)].length != kNoToken; }
  // The text of a token, empty for a gap. Valid as long as the vocabulary.
  std::string_view Text(int32_t id) const {
    const Span span = spans_[static_cast<size_t>(id)];
    return span.length == kNoToken ? std::string_view() : std::string_view(arena_).substr(span.begin, span.length);
  }
  int32_t id_limit() const { return static_cast<int32_t>(spans_.size()); }

 private:
  static constexpr uint32_t kNoToken = UINT32_MAX;
  struct Span {
    uint32_t begin = 0;
    uint32_t length = kNoToken;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1: empty
  };
  // The slot that holds `text`, or the empty one where it belongs.
  size_t SlotOf(std::string_view text, uint32_t hash) const;

  std::string arena_;
  std::vector<Span> spans_;  // [id_limit]
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t mask_ = 0;
};

}  // namespace lapidary
