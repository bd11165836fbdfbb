#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lapidary {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kSpaceMarkUtf8 = "\xE2\x96\x81";    // U+2581
inline constexpr uint32_t kSpaceMark = 0x2581;

struct CodePoint {
  uint32_t value = 0;
  uint32_t length_bytes = 0;
};

// The first code point of `text`, which must be valid UTF-8 and not empty.
inline CodePoint FirstCodePoint(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The last code point of `text`, which must be valid UTF-8 and not empty.
CodePoint LastCodePoint(std::string_view text);

enum class Utf8State {
  kComplete,  // the bytes begin with a whole character
  kPartial,   // all bytes are the beginning of one character
  kInvalid,   // the bytes begin with something that no character begins with
};

struct Utf8Prefix {
  Utf8State state;
  size_t
      length_bytes;  // of the character, or of the maximal subpart that one U+FFFD stands for (Unicode 15, table 3-8)
};

// What `bytes` (arbitrary, not empty) begin with.
Utf8Prefix ClassifyUtf8(std::string_view bytes);

bool IsValidUtf8(std::string_view bytes);

// `bytes` with every maximal subpart of an ill-formed sequence replaced by U+FFFD.
std::string RepairUtf8(std::string_view bytes);

// `text` with every ' ' as U+2581, and the way back.
std::string MarkSpaces(std::string_view text);
std::string UnmarkSpaces(std::string_view text);

// Unicode's White_Space, and what regular expressions call a word character (UTS 18, annex C).
bool IsWhiteSpace(uint32_t code_point);
bool IsWordCharacter(uint32_t code_point);

}  // namespace lapidary
