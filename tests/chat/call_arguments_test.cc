#include "chat/call_arguments.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "chat/marker_scanner.h"

namespace lapidary {
namespace {

// `text` behind the opening brace.
std::string JsonOf(std::string_view text) {
  CallArguments arguments;
  std::string json;
  for (const ScannedText& piece : MarkerScanner().Push(text)) {
    if (piece.marker == AnswerMarker::kQuote) {
      arguments.AddQuoteMarker();
    } else {
      arguments.AddText(piece.text);
    }
    json += arguments.Take();
  }
  arguments.Close();
  json += arguments.Take();
  ParseJson(json, "arguments");
  return json;
}

TEST(CallArguments, ReadsEveryKindOfValue) {
  EXPECT_EQ(JsonOf("}"), "{}");
  EXPECT_EQ(JsonOf(R"(s:<|"|>a,b}]"<|"|>,i:42,n:-1.5e3,t:true,f:false,z:null})"),
            R"({"s":"a,b}]\"","i":42,"n":-1.5e3,"t":true,"f":false,"z":null})");
  EXPECT_EQ(JsonOf(R"(l:[<|"|>a<|"|>,{k:1},[],{}],o:{p:{q:<|"|><|"|>}}})"),
            R"({"l":["a",{"k":1},[],{}],"o":{"p":{"q":""}}})");
  EXPECT_EQ(JsonOf(" a : 1 , b : [ 1 , 2 ] , c : { } }"), R"({"a":1,"b":[1,2],"c":{}})");
}

TEST(CallArguments, EscapesWhatJsonMust) {
  EXPECT_EQ(JsonOf("s:<|\"|>\"\\\n\r\t\x01\x7f é<|\"|>}"), R"({"s":"\"\\\n\r\t\u0001)"
                                                           "\x7f é\"}");
  EXPECT_EQ(JsonOf("a\"b:1}"), R"({"a\"b":1})");
}

// Field report 16.
TEST(CallArguments, QuotesMayBeMissing) {
  EXPECT_EQ(JsonOf(R"(q:weather in Tokyo<|"|>})"), R"({"q":"weather in Tokyo"})");
  EXPECT_EQ(JsonOf(R"(q:Tokyo, Japan<|"|>,u:<|"|>c<|"|>})"), R"({"q":"Tokyo, Japan","u":"c"})");
  EXPECT_EQ(JsonOf(R"(q:weather in Tokyo})"), R"({"q":"weather in Tokyo"})");
  EXPECT_EQ(JsonOf(R"(q:a b,u:<|"|>c<|"|>})"), R"({"q":"a b","u":"c"})");
  EXPECT_EQ(JsonOf(R"(q:a, b,u:1})"), R"({"q":"a, b","u":1})");
  EXPECT_EQ(JsonOf(R"(q:at 10:30, then})"), R"({"q":"at 10:30, then"})");
  EXPECT_EQ(JsonOf(R"(l:[a b,c]})"), R"({"l":["a b","c"]})");
  EXPECT_EQ(JsonOf(R"(n:42<|"|>})"), R"({"n":"42"})");
  EXPECT_EQ(JsonOf(R"(a:<|"|>x)"), R"({"a":"x"})");
}

TEST(CallArguments, OnlyJsonsNumbersAreNumbers) {
  EXPECT_EQ(JsonOf("a:0,b:-0.5,c:1E+2,d:10}"), R"({"a":0,"b":-0.5,"c":1E+2,"d":10})");
  for (const std::string text :
       {"007", ".5", "1.", "+1", "1e", "-", "1_000", "0x10", "NaN", "Infinity", "1e999", "12a"}) {
    EXPECT_EQ(JsonOf("a:" + text + "}"), "{\"a\":\"" + text + "\"}");
  }
  EXPECT_EQ(JsonOf("a:True,b:None,c:False}"), R"({"a":true,"b":null,"c":false})");
  const std::string digits(5000, '1');
  EXPECT_EQ(JsonOf("a:" + digits + "}"), "{\"a\":\"" + digits + "\"}");
}

TEST(CallArguments, JsonsOwnQuotesPass) {
  EXPECT_EQ(JsonOf(R"("a":"x, y}","b:c":[1]})"), R"({"a":"x, y}","b:c":[1]})");
  EXPECT_EQ(JsonOf(R"(a:"tab\t \"q\" \u00e9"})"), "{\"a\":\"tab\\t \\\"q\\\" é\"}");
  EXPECT_EQ(JsonOf(R"(a:"bad \x",b:1})"), R"({"a":"bad \\x","b":1})");
  EXPECT_EQ(JsonOf(R"(a:"never closed)"), R"({"a":"never closed"})");
  EXPECT_EQ(JsonOf(R"(<|"|>a<|"|>:1})"), R"({"a":1})");
}

TEST(CallArguments, BracketsMayBeStrayOrMissing) {
  EXPECT_EQ(JsonOf("a:[1,2]]}"), R"({"a":[1,2]})");
  EXPECT_EQ(JsonOf("a:1]}"), R"({"a":"1]"})");
  EXPECT_EQ(JsonOf("a:[1,2}"), R"({"a":[1,2]})");
  EXPECT_EQ(JsonOf("a:[{b:1],c:2}"), R"({"a":[{"b":1}],"c":2})");
  EXPECT_EQ(JsonOf(R"({"a":1}})"), R"({"a":1})");
  EXPECT_EQ(JsonOf("a{b:1}}"), R"({"a":{"b":1}})");
  EXPECT_EQ(JsonOf("a:[[1,{k:[2"), R"({"a":[[1,{"k":[2]}]]})");
}

TEST(CallArguments, WhatIsMissingIsNullOrLeftOut) {
  EXPECT_EQ(JsonOf("a:,b:}"), R"({"a":null,"b":null})");
  EXPECT_EQ(JsonOf("a:"), R"({"a":null})");
  EXPECT_EQ(JsonOf("a,b:1,,c}"), R"({"b":1})");
  EXPECT_EQ(JsonOf("l:[1,,2,],m:1}"), R"({"l":[1,2],"m":1})");
  EXPECT_EQ(JsonOf(R"(a:<|"|>x<|"|> y <|"|>,b:1})"), R"({"a":"x","b":1})");
}

TEST(CallArguments, TheFirstOfEqualKeysCounts) {
  EXPECT_EQ(JsonOf("a:1,a:{a:2,b:[3]},c:{a:4,a:5},a:<|\"|>x<|\"|>}"), R"({"a":1,"c":{"a":4}})");
}

TEST(CallArguments, TooDeepIsNull) {
  std::string open, expected = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) open += "[";
  const std::string json = JsonOf("a:" + open);
  EXPECT_LT(json.size(), 500u);
  EXPECT_NE(json.find("[null]"), std::string::npos);
  EXPECT_NE(JsonOf("a:" + open + std::string(100'000, ']') + ",b:1}").find(R"(,"b":1})"), std::string::npos);
}

}  // namespace
}  // namespace lapidary
