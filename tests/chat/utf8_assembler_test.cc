#include "chat/utf8_assembler.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

std::string Assemble(std::string_view bytes, size_t piece) {
  Utf8Assembler assembler;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += piece) out += assembler.Push(bytes.substr(at, piece));
  return out + assembler.Finish();
}

TEST(Utf8Assembler, TheSameForEveryCut) {
  const std::pair<std::string, std::string> cases[] = {
      {"aé깰😊", "aé깰😊"},
      {"\xEA\xB9", "\uFFFD"},
      {"\xEA\xB9z", "\uFFFDz"},
      {"\xF0\x9F\x98\xEA\xB9\xB0", "\uFFFD깰"},
      {"\x80\xC0\xFF", "\uFFFD\uFFFD\uFFFD"},
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},            // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // a surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // beyond U+10FFFF
      {"\xF0\x80", "\uFFFD\uFFFD"},
      {"", ""},
  };
  for (const auto& [bytes, expected] : cases) {
    for (size_t piece = 1; piece <= 5; ++piece) EXPECT_EQ(Assemble(bytes, piece), expected) << piece;
  }
}

TEST(Utf8Assembler, HoldsBackOnlyABegunCharacter) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.Push("a\xEA"), "a");
  EXPECT_EQ(assembler.Push("\xB9"), "");
  EXPECT_EQ(assembler.Push("\xB0z"), "깰z");
  EXPECT_EQ(assembler.Finish(), "");
}

}  // namespace
}  // namespace lapidary
