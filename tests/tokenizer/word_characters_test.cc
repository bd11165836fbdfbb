#include <gtest/gtest.h>

#include "tokenizer/utf8.h"

namespace lapidary {
namespace {

TEST(WordCharactersTest, Ascii) {
  for (uint32_t c = 0; c < 128; ++c) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    EXPECT_EQ(IsWordCharacter(c), word) << c;
  }
}

TEST(WordCharactersTest, LettersMarksDigitsOfEveryScript) {
  // Latin, combining mark, Arabic digit, Devanagari, joiner, circled letter, Han, Hangul, tie, supplementary letter.
  for (const uint32_t c : {0xE9, 0x301, 0x663, 0x915, 0x200D, 0x24B6, 0x4F60, 0xAE70, 0x203F, 0x1D518}) {
    EXPECT_TRUE(IsWordCharacter(c)) << c;
  }
}

TEST(WordCharactersTest, NotPunctuationSymbolsSpaces) {
  for (const uint32_t c : {0xA0, 0xD7, 0x2014, 0x2581, 0x3000, 0x1F60A, 0x10FFFF})
    EXPECT_FALSE(IsWordCharacter(c)) << c;
}

}  // namespace
}  // namespace lapidary
