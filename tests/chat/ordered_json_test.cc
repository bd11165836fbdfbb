#include "chat/ordered_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

TEST(ParseOrderedJson, KeepsTheOrderOfKeys) {
  const std::string text = R"({"b":[1,-2,3.5,"x",true,null,{"z":{},"a":[]}],"a":{"B":"é","A":18446744073709551615}})";
  EXPECT_EQ(ParseOrderedJson(text, "text").dump(), text);
  EXPECT_EQ(Json(ParseOrderedJson(text, "text")), ParseJson(text, "text"));
  EXPECT_EQ(ParseOrderedJson(" 7 ", "text"), 7);
}

TEST(ParseOrderedJson, TakesTimeLinearInTheKeys) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"k" + std::to_string(i) + "\":1,";
  text.back() = '}';
  EXPECT_EQ(ParseOrderedJson(text, "text").size(), 200'000u);
}

TEST(ParseOrderedJson, RefusesWhatIsNotJson) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "not valid JSON"},
      {"{", "not valid JSON"},
      {"[1,]", "not valid JSON"},
      {"1 2", "not valid JSON"},
      {"\"\xFF\"", "not valid JSON"},
      {"NaN", "not valid JSON"},
      {"1e999", "not valid JSON"},
      {std::string("1\0", 2), "zero byte at offset 1"},
      {R"({"a":1,"b":{},"a":2})", "the key \"a\" twice"},
      {std::string(5000, '['), "nested deeper than 128"},
  };
  for (const auto& [text, part] : cases) {
    try {
      ParseOrderedJson(text, "place");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
      EXPECT_THAT(error.what(), HasSubstr("place: "));
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace lapidary
