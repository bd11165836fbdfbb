#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lapidary {
namespace {

std::string MessageOf(const std::string& text) {
  try {
    ParseJson(text, "thing.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
    return error.what();
  }
  ADD_FAILURE() << "found no error for " << text.substr(0, 40);
  return "";
}

std::string Nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(ParseJsonTest, ReadsValues) {
  const Json json = ParseJson(R"({"a": [1, -2, 2.5, true, null, "\u00e9"], "b": {"a": {}}})", "x");
  EXPECT_EQ(json["a"][1], -2);
  EXPECT_EQ(json["a"][5], "é");
  EXPECT_TRUE(json["b"]["a"].empty());
}

TEST(ParseJsonTest, TellsWhatIsNotJson) {
  for (const std::string& text : {std::string(), std::string(" "), std::string("{"), std::string("{\"a\":1,}"),
                                  std::string("nul"), std::string("1 2"), std::string("1e999"), std::string("NaN"),
                                  std::string("\"\xff\""), std::string("\"a\nb\""), std::string("{}\0", 3)}) {
    const std::string message = MessageOf(text);
    EXPECT_EQ(message.find("thing.json: not valid JSON: "), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
  }
}

TEST(ParseJsonTest, TellsWhere) {
  EXPECT_EQ(MessageOf("{]").find("thing.json: not valid JSON: parse error at line 1, column 2"), 0u);
}

TEST(ParseJsonTest, LongFaultsGiveShortMessages) {
  EXPECT_LT(MessageOf("\"" + std::string(1'000'000, 'a') + "\n\"").size(), 250u);
}

TEST(ParseJsonTest, DepthIsLimited) {
  EXPECT_NO_THROW(ParseJson(Nested(kMaxJsonDepth), "x"));
  EXPECT_NE(MessageOf(Nested(kMaxJsonDepth + 2)).find("nested deeper than 128"), std::string::npos);
  EXPECT_NE(MessageOf(std::string(1'000'000, '[')).find("nested deeper than 128"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += "{\"a\":";
  EXPECT_NE(MessageOf(objects).find("nested deeper than 128"), std::string::npos);
}

TEST(ParseJsonTest, AKeyMayNotComeTwiceInOneObject) {
  EXPECT_NE(MessageOf(R"({"a": 1, "b": 2, "a": 3})").find("\"a\" twice"), std::string::npos);
  EXPECT_NE(MessageOf(R"([{"x": {"\u0061": 1, "a": 3}}])").find("\"a\" twice"), std::string::npos);
  EXPECT_NO_THROW(ParseJson(R"([{"a": 1}, {"a": {"a": 2}}, {"b": [{"a": 1}, {"a": 2}]}])", "x"));
}

TEST(PrintableTest, KeepsTextAndReplacesTheRest) {
  EXPECT_EQ(Printable("plain text"), "plain text");
  EXPECT_EQ(Printable("Café 😊"), "Café 😊");
  EXPECT_EQ(Printable(std::string_view("a\nb\0c\x7f", 6)), "a?b?c?");
  EXPECT_EQ(Printable("\xff\xc0\x80\xed\xa0\x80x"), "??????x");
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "????");
  EXPECT_EQ(Printable("\xe2\x82"), "??");
}

TEST(PrintableTest, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdef", 5), "abcde...");
  EXPECT_EQ(Printable("abcdé", 5), "abcd...");
}

}  // namespace
}  // namespace lapidary
