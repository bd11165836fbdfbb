#include "tokenizer/utf8.h"

#include <simdjson.h>

namespace lapidary {

CodePoint LastCodePoint(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return FirstCodePoint(text.substr(begin));
}

Utf8Prefix ClassifyUtf8(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  if (lead < 0x80) return {Utf8State::kComplete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8State::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF (Unicode 15, table 3-7).
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8State::kPartial, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < low || byte > high) return {Utf8State::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8State::kComplete, length};
}

bool IsValidUtf8(std::string_view bytes) { return simdjson::validate_utf8(bytes.data(), bytes.size()); }

std::string RepairUtf8(std::string_view bytes) {
  std::string repaired;
  repaired.reserve(bytes.size() + 16);
  while (!bytes.empty()) {
    const Utf8Prefix prefix = ClassifyUtf8(bytes);
    const bool complete = prefix.state == Utf8State::kComplete;
    repaired += complete ? bytes.substr(0, prefix.length_bytes) : kReplacementUtf8;
    bytes.remove_prefix(prefix.length_bytes);
  }
  return repaired;
}

std::string MarkSpaces(std::string_view text) {
  std::string marked;
  marked.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMarkUtf8;
    } else {
      marked += c;
    }
  }
  return marked;
}

std::string UnmarkSpaces(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t at = text.find(kSpaceMarkUtf8); at != std::string_view::npos; at = text.find(kSpaceMarkUtf8)) {
    plain += text.substr(0, at);
    plain += ' ';
    text.remove_prefix(at + kSpaceMarkUtf8.size());
  }
  return plain += text;
}

bool IsWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace lapidary
