#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

TEST(Utf8Test, CodePointsOfEachLength) {
  const std::pair<std::string, uint32_t> cases[] = {
      {"a", 'a'}, {"\u00e9", 0xE9}, {"\u2581", 0x2581}, {"\U0001F60A", 0x1F60A}, {"\U0010FFFF", 0x10FFFF}};
  for (const auto& [text, value] : cases) {
    EXPECT_EQ(FirstCodePoint(text + "z").value, value);
    EXPECT_EQ(FirstCodePoint(text + "z").length_bytes, text.size());
    EXPECT_EQ(LastCodePoint("\u00e9" + text).value, value);
    EXPECT_EQ(LastCodePoint(text).length_bytes, text.size());
  }
}

TEST(Utf8Test, ClassifyNamesWholePartialAndInvalid) {
  const std::string character = "\U0001F60A";
  for (size_t length = 1; length < 4; ++length) {
    EXPECT_EQ(ClassifyUtf8(character.substr(0, length)).state, Utf8State::kPartial);
    EXPECT_EQ(ClassifyUtf8(character.substr(0, length) + "a").state, Utf8State::kInvalid);
    EXPECT_EQ(ClassifyUtf8(character.substr(0, length) + "a").length_bytes, length);
  }
  EXPECT_EQ(ClassifyUtf8(character).state, Utf8State::kComplete);
  EXPECT_EQ(ClassifyUtf8(character + "\xFF").length_bytes, 4U);
}

TEST(Utf8Test, ClassifyRefusesWhatIsNoCharacter) {
  // A continuation byte, overlong forms, a surrogate, above U+10FFFF, bytes that occur nowhere.
  for (const char* bytes : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                            "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(ClassifyUtf8(bytes).state, Utf8State::kInvalid);
    EXPECT_EQ(ClassifyUtf8(bytes).length_bytes, 1U);
    EXPECT_FALSE(IsValidUtf8(bytes));
  }
}

TEST(Utf8Test, RepairUsesOneMarkForEachMaximalSubpart) {
  EXPECT_EQ(RepairUtf8("a\u00e9"), "a\u00e9");
  EXPECT_EQ(RepairUtf8(""), "");
  EXPECT_EQ(RepairUtf8("\xF0\x9F\x98"
                       "a"),
            "\uFFFDa");
  EXPECT_EQ(RepairUtf8("\xE2\x96"), "\uFFFD");
  // Unicode 15, table 3-11.
  EXPECT_EQ(RepairUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8Test, SpacesMarkedAndBack) {
  EXPECT_EQ(MarkSpaces(" a  b\n"), "\u2581a\u2581\u2581b\n");
  EXPECT_EQ(UnmarkSpaces("\u2581a\u2581\u2581b\n"), " a  b\n");
  EXPECT_EQ(UnmarkSpaces("\u2580\u2582"), "\u2580\u2582");
  EXPECT_EQ(MarkSpaces(""), "");
}

TEST(Utf8Test, WhiteSpace) {
  for (const uint32_t c : {0x09, 0x0A, 0x0D, 0x20, 0x85, 0xA0, 0x2003, 0x2028, 0x3000}) EXPECT_TRUE(IsWhiteSpace(c));
  for (const uint32_t c : {0x08, 0x0E, 0x21, 0x200B, 0x2581, 0xFEFF}) EXPECT_FALSE(IsWhiteSpace(c));
}

}  // namespace
}  // namespace lapidary
