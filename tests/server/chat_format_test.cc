#include "server/chat_format.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

ChatFormat Format(size_t choices = 1) {
  ChatFormatOptions options;
  options.header = {.id = "chatcmpl-1", .model = "m", .created_unix_s = 7};
  options.choices = choices;
  return ChatFormat(std::move(options));
}

AnswerDelta TwoCalls() {
  using enum ChatEventKind;
  AnswerDelta delta;
  delta.events = {{kReasoning, 0, "hm"}, {kCallName, 0, "f"}, {kCallArguments, 0, "{\"a\":"}, {kCallArguments, 0, "1}"},
                  {kCallEnd, 0, ""},     {kCallName, 1, "g"}, {kCallArguments, 1, "{}"},      {kCallEnd, 1, ""}};
  delta.end.emplace();
  delta.end->finish = FinishReason::kStop;
  delta.end->complete_calls = 2;
  return delta;
}

// Field report 18.
TEST(ChatFormat, StreamsCallsWithTheirIndexAndId) {
  ChatFormat format = Format();
  std::vector<OrderedJson> chunks;
  format.Chunks(0, TwoCalls(), chunks);
  ASSERT_EQ(chunks.size(), 8u);
  const auto delta = [&](size_t i) { return chunks[i]["choices"][0]["delta"]; };
  EXPECT_EQ(delta(0).dump(), R"({"role":"assistant","content":""})");
  EXPECT_EQ(delta(1).dump(), R"({"reasoning_content":"hm"})");
  EXPECT_EQ(delta(2)["tool_calls"][0]["function"].dump(), R"({"name":"f","arguments":""})");
  EXPECT_EQ(delta(3).dump(), R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]})");
  EXPECT_EQ(delta(5)["tool_calls"][0]["index"], 1);
  EXPECT_NE(delta(2)["tool_calls"][0]["id"], delta(5)["tool_calls"][0]["id"]);
  EXPECT_EQ(delta(7).dump(), "{}");
  EXPECT_EQ(chunks[7]["choices"][0]["finish_reason"], "tool_calls");
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(chunks[i]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(chunks[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(format.EmptyChunk()["choices"], OrderedJson::array());
}

TEST(ChatFormat, CollectsTheSameMessage) {
  ChatFormat format = Format(2);
  format.Take(0, TwoCalls());
  AnswerDelta text;
  text.events = {{ChatEventKind::kContent, 0, "Hi"}};
  format.Take(1, text);
  AnswerDelta end;
  end.end.emplace();
  end.end->finish = FinishReason::kLength;
  format.Take(1, end);
  const OrderedJson whole = format.Whole(Usage(2));
  const OrderedJson& message = whole["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["tool_calls"][0]["function"].dump(), R"({"name":"f","arguments":"{\"a\":1}"})");
  EXPECT_EQ(message["tool_calls"][1]["function"]["name"], "g");
  EXPECT_EQ(whole["choices"][1]["message"]["content"], "Hi");
  EXPECT_FALSE(whole["choices"][1]["message"].contains("tool_calls"));
  EXPECT_EQ(whole["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 0);
}

}  // namespace
}  // namespace lapidary
