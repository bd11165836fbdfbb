#include "server/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expect_refusal.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;

TEST(JsonFields, ReadsWhatIsThere) {
  const OrderedJson object =
      OrderedJson::parse(R"({"b": true, "i": 5, "whole": 5.0, "x": 0.5, "s": "t", "ids": [1, 2.0], "none": null})");
  JsonFields fields(object, "");
  EXPECT_EQ(fields.Bool("b"), true);
  EXPECT_EQ(fields.Integer("i", 0, 9), 5);
  EXPECT_EQ(fields.Integer("whole", 0, 9), 5);
  EXPECT_EQ(fields.Number("x", 0, 1), 0.5);
  EXPECT_EQ(fields.Number("i", 0, 9), 5.0);
  EXPECT_EQ(fields.String("s"), "t");
  EXPECT_THAT(*fields.Ids("ids", 3), ElementsAre(1, 2));
  EXPECT_EQ(fields.Bool("none"), std::nullopt);
  EXPECT_EQ(fields.String("missing"), std::nullopt);
  fields.RefuseUnknown();
}

TEST(JsonFields, RefusesOtherTypesAndRanges) {
  const OrderedJson object = OrderedJson::parse(
      R"({"s": "t", "i": 5, "half": 0.5, "big": 1e30, "huge": 18446744073709551615, "ids": [1, 9], "words": ["a"]})");
  JsonFields fields(object, "outer.");
  ExpectRefusal("outer.s", [&] { fields.Bool("s"); });
  ExpectRefusal("outer.s", [&] { fields.Integer("s", 0, 9); });
  ExpectRefusal("outer.i", [&] { fields.Integer("i", 6, 9); });
  ExpectRefusal("outer.i", [&] { fields.String("i"); });
  ExpectRefusal("outer.half", [&] { fields.Integer("half", 0, 9); });
  ExpectRefusal("outer.big", [&] { fields.Integer("big", 0, INT64_MAX); });
  ExpectRefusal("outer.huge", [&] { fields.Integer("huge", 0, INT64_MAX); });
  ExpectRefusal("outer.big", [&] { fields.Number("big", 0, 1); });
  ExpectRefusal("outer.ids", [&] { fields.Ids("ids", 9); });
  ExpectRefusal("outer.words", [&] { fields.Ids("words", 9); });
  ExpectRefusal("outer.i", [&] { fields.Object("i"); });
  ExpectRefusal("outer.i", [&] { fields.Refuse("i", "not supported"); });
  fields.Refuse("missing", "not supported");
}

TEST(JsonFields, RefusesNamesNobodyAskedForUnlessNull) {
  const OrderedJson object = OrderedJson::parse(R"({"a": 1, "b": 2, "c": null})");
  JsonFields fields(object, "");
  fields.Ignore({"a"});
  ExpectRefusal("b", [&] { fields.RefuseUnknown(); });
  fields.Find("b");
  fields.RefuseUnknown();
}

TEST(JsonFields, ShowsValuesShortly) {
  EXPECT_EQ(Found("a\nb"), "\"a?b\"");
  EXPECT_EQ(Found(OrderedJson::array({1, 2})), "an array of 2");
  EXPECT_LT(Found(std::string(10'000, 'x')).size(), 100u);
}

}  // namespace
}  // namespace lapidary
