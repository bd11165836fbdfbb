#include "tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace lapidary {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::vector<std::pair<std::string, int32_t>> Split(const AddedTokenMatcher& matcher, std::string_view text,
                                                   bool match_special = true) {
  std::vector<std::pair<std::string, int32_t>> stretches;
  for (const Stretch& stretch : matcher.Split(text, match_special)) {
    stretches.emplace_back(std::string(stretch.text), stretch.id);
  }
  return stretches;
}

AddedToken Token(const std::string& content, int32_t id) {
  AddedToken token;
  token.content = content;
  token.id = id;
  return token;
}

TEST(AddedTokensTest, LeftmostThenLongest) {
  const AddedTokenMatcher matcher({Token("<a", 1), Token("<a>", 2), Token("a>b", 3), Token("<", 4)});
  EXPECT_THAT(Split(matcher, "x<a>b"), ElementsAre(Pair("x", -1), Pair("<a>", 2), Pair("b", -1)));
  EXPECT_THAT(Split(matcher, "a>b<<a"), ElementsAre(Pair("a>b", 3), Pair("<", 4), Pair("<a", 1)));
  EXPECT_THAT(Split(matcher, "a>"), ElementsAre(Pair("a>", -1)));
  EXPECT_THAT(Split(matcher, ""), IsEmpty());
}

TEST(AddedTokensTest, NoTokens) {
  const AddedTokenMatcher matcher({});
  EXPECT_TRUE(matcher.empty());
  EXPECT_THAT(Split(matcher, "text"), ElementsAre(Pair("text", -1)));
}

TEST(AddedTokensTest, StripsTakeWhiteSpace) {
  std::vector<AddedToken> tokens = {Token("<l>", 1), Token("<r>", 2), Token("<b>", 3)};
  tokens[0].lstrip = tokens[2].lstrip = true;
  tokens[1].rstrip = tokens[2].rstrip = true;
  const AddedTokenMatcher matcher(tokens);
  EXPECT_THAT(Split(matcher, "a \t<l> b"), ElementsAre(Pair("a", -1), Pair(" \t<l>", 1), Pair(" b", -1)));
  EXPECT_THAT(Split(matcher, "a <r>\u3000\nb"), ElementsAre(Pair("a ", -1), Pair("<r>\u3000\n", 2), Pair("b", -1)));
  EXPECT_THAT(Split(matcher, " <b> "), ElementsAre(Pair(" <b> ", 3)));
  EXPECT_THAT(Split(matcher, "<r> <l>"), ElementsAre(Pair("<r> ", 2), Pair("<l>", 1)));
}

TEST(AddedTokensTest, TokenInsideWhiteSpaceAlreadyTaken) {
  std::vector<AddedToken> tokens = {Token("<r>", 1), Token("\n\n", 2)};
  tokens[0].rstrip = true;
  tokens[1].lstrip = tokens[1].rstrip = true;
  EXPECT_THAT(Split(AddedTokenMatcher(tokens), "<r>\n\nx"), ElementsAre(Pair("<r>\n\n", 1), Pair("x", -1)));
}

TEST(AddedTokensTest, SingleWordStandsBetweenOtherCharacters) {
  std::vector<AddedToken> tokens = {Token("ab", 1)};
  tokens[0].single_word = true;
  const AddedTokenMatcher matcher(tokens);
  EXPECT_THAT(Split(matcher, "ab"), ElementsAre(Pair("ab", 1)));
  EXPECT_THAT(Split(matcher, "-ab "), ElementsAre(Pair("-", -1), Pair("ab", 1), Pair(" ", -1)));
  EXPECT_THAT(Split(matcher, "abc"), ElementsAre(Pair("abc", -1)));
  EXPECT_THAT(Split(matcher, "\u00e9ab"), ElementsAre(Pair("\u00e9ab", -1)));
  EXPECT_THAT(Split(matcher, "abab"), ElementsAre(Pair("abab", -1)));
}

TEST(AddedTokensTest, SpecialTokensMayStayText) {
  std::vector<AddedToken> tokens = {Token("<s>", 1), Token("s>", 2), Token("x", 3)};
  tokens[0].special = true;
  const AddedTokenMatcher matcher(tokens);
  EXPECT_THAT(Split(matcher, "x<s>"), ElementsAre(Pair("x", 3), Pair("<s>", 1)));
  EXPECT_THAT(Split(matcher, "x<s>x", false), ElementsAre(Pair("x", 3), Pair("<s>", -1), Pair("x", 3)));
}

TEST(AddedTokensTest, ManySpacesBeforeAStrippingToken) {
  std::vector<AddedToken> tokens = {Token(" ", 1)};
  tokens[0].lstrip = true;
  EXPECT_EQ(AddedTokenMatcher(tokens).Split(std::string(200'000, ' '), true).size(), 200'000U);
}

}  // namespace
}  // namespace lapidary
