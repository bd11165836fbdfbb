#include "chat/utf8_assembler.h"

#include <cstddef>

namespace lapidary {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the character that `lead` begins; 0 when it begins none.
size_t LengthOf(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Whether `next` may be byte `at` (from 1) of a character that begins with `lead`.
bool Continues(unsigned char lead, size_t at, unsigned char next) {
  if (at == 1 && lead == 0xE0) return next >= 0xA0 && next <= 0xBF;
  if (at == 1 && lead == 0xED) return next >= 0x80 && next <= 0x9F;
  if (at == 1 && lead == 0xF0) return next >= 0x90 && next <= 0xBF;
  if (at == 1 && lead == 0xF4) return next >= 0x80 && next <= 0x8F;
  return next >= 0x80 && next <= 0xBF;
}

}  // namespace

std::string Utf8Assembler::Push(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (!held_.empty() && !Continues(static_cast<unsigned char>(held_[0]), held_.size(), byte)) {
      out += kReplacement;
      held_.clear();
    }
    if (held_.empty() && LengthOf(byte) == 0) {
      out += kReplacement;
      continue;
    }
    held_ += c;
    if (held_.size() < LengthOf(static_cast<unsigned char>(held_[0]))) continue;
    out += held_;
    held_.clear();
  }
  return out;
}

std::string Utf8Assembler::Finish() {
  const bool begun = !held_.empty();
  held_.clear();
  return begun ? std::string(kReplacement) : std::string();
}

}  // namespace lapidary
