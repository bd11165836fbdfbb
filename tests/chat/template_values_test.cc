#include "chat/template_values.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

OrderedJson Parse(const std::string& text) { return ParseOrderedJson(text, "value"); }

// The expected texts are Python 3.11's str() of the same values.
TEST(TemplateValues, PrintAsPythonDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"null", "None"},
      {"true", "True"},
      {"-7", "-7"},
      {"18446744073709551615", "18446744073709551615"},
      {"1.0", "1.0"},
      {"0.1", "0.1"},
      {"-1500.25", "-1500.25"},
      {"-0.0", "-0.0"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"123456789012345678", "123456789012345678"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1.5e300", "1.5e+300"},
      {"5e-324", "5e-324"},
      {"\"it's\"", "it's"},
      {R"(["a", "it's", "\"", "'\"", "\n\t\\é\u0007\u00a0\u2028"])",
       R"(['a', "it's", '"', '\'"', '\n\t\\é\x07\xa0\u2028'])"},
      {R"({"b": [1, null, {}], "a": false})", "{'b': [1, None, {}], 'a': False}"},
  };
  for (const auto& [json, expected] : cases) {
    const OrderedJson value = Parse(json);
    EXPECT_EQ(PythonStr(&value), expected);
  }
  EXPECT_EQ(PythonStr(nullptr), "");
}

TEST(TemplateValues, TruthIsPythons) {
  for (const char* json : {"null", "false", "0", "0.0", "-0.0", "\"\"", "[]", "{}"}) {
    const OrderedJson value = Parse(json);
    EXPECT_FALSE(IsTruthy(&value)) << json;
  }
  for (const char* json : {"true", "-1", "0.1", "\" \"", "[null]", "{\"\":0}"}) {
    const OrderedJson value = Parse(json);
    EXPECT_TRUE(IsTruthy(&value)) << json;
  }
  EXPECT_FALSE(IsTruthy(nullptr));
}

TEST(TemplateValues, MembersAndItems) {
  const OrderedJson value = Parse(R"({"b": null, "B": 1, "a": [1, 2]})");
  EXPECT_TRUE(IsNone(Member(&value, "b")));
  EXPECT_EQ(Member(&value, "c"), nullptr);
  EXPECT_EQ(Member(Member(&value, "B"), "x"), nullptr);
  EXPECT_EQ(Member(nullptr, "x"), nullptr);
  EXPECT_EQ(Items(&value), (std::vector<OrderedJson>{"b", "B", "a"}));
  EXPECT_EQ(Items(Member(&value, "a")), (std::vector<OrderedJson>{1, 2}));
  const OrderedJson text = "aé깰";
  EXPECT_EQ(Items(&text), (std::vector<OrderedJson>{"a", "é", "깰"}));
  EXPECT_TRUE(Items(nullptr).empty());
  std::string order;
  for (const auto* member : SortedMembers(value)) order += member->first;
  EXPECT_EQ(order, "abB");
}

TEST(TemplateValues, TrimsAllOfUnicodesWhiteSpace) {
  EXPECT_EQ(Trim(" \t\n\v\f\r\x1c\x1f\u0085\u00a0\u2003\u3000a b\u2028\u205f "), "a b");
  EXPECT_EQ(Trim("\u200b"), "\u200b");
  EXPECT_EQ(Trim(" \u3000"), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(TemplateValues, CaseIsUnicodes) {
  EXPECT_EQ(Upper("string é ж ω 깰 1"), "STRING É Ж Ω 깰 1");
  EXPECT_EQ(Lower("String É Ж Ω 깰 1"), "string é ж ω 깰 1");
}

}  // namespace
}  // namespace lapidary
