#include "generation/answer_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lapidary {
namespace {

// The demo model's tokenizer has every marker at Gemma 4's id.
const Tokenizer& DemoTokenizer() {
  static const Tokenizer tokenizer = Tokenizer::Load(LAPIDARY_SOURCE_DIR "/models/demo/tokenizer.json");
  return tokenizer;
}

struct Answer {
  std::string content, reasoning, names, arguments;
  int64_t reasoning_tokens = 0, calls = 0;
  size_t read = 0;  // ids taken until it stopped
};

Answer Read(const std::string& text, AnswerReaderOptions options) {
  AnswerReader reader(&DemoTokenizer(), options);
  Answer answer;
  const auto take = [&](const std::vector<ChatEvent>& events) {
    for (const ChatEvent& event : events) {
      if (event.kind == ChatEventKind::kContent) answer.content += event.text;
      if (event.kind == ChatEventKind::kReasoning) answer.reasoning += event.text;
      if (event.kind == ChatEventKind::kCallName) answer.names += event.text + ";";
      if (event.kind == ChatEventKind::kCallArguments) answer.arguments += event.text;
    }
  };
  for (const int32_t id : DemoTokenizer().Encode(text)) {
    if (reader.stopped()) break;
    take(reader.Push(id));
    ++answer.read;
  }
  take(reader.Finish());
  answer.reasoning_tokens = reader.reasoning_tokens();
  answer.calls = reader.complete_calls();
  return answer;
}

TEST(AnswerReader, PlainTextIsContentUpToTheStop) {
  EXPECT_EQ(Read("one two three", {}).content, "one two three");
  EXPECT_EQ(Read("one two three", {.stop = {"o three"}}).content, "one tw");
  EXPECT_EQ(Read("one two three", {.stop = {"three of"}}).content, "one two three");
}

TEST(AnswerReader, TakesAChatTurnApart) {
  const Answer answer = Read("<|channel>thought\nlook up<channel|>It is<|tool_call>call:f{a:1}<tool_call|>",
                             {.chat = ChatParserOptions{}});
  EXPECT_EQ(answer.reasoning, "look up");
  EXPECT_EQ(answer.content, "It is");
  EXPECT_EQ(answer.names, "f;");
  EXPECT_EQ(answer.arguments, R"({"a":1})");
  EXPECT_EQ(answer.calls, 1);
  const size_t thought = DemoTokenizer().Encode("<|channel>thought\nlook up<channel|>").size();
  EXPECT_EQ(answer.reasoning_tokens, static_cast<int64_t>(thought));
}

// Field report 33: a stop text inside a thought or a call does not end the answer.
TEST(AnswerReader, StopTextsAreLookedForInTheContentAlone) {
  const std::string text = "<|channel>thought\nred blue<channel|>one red blue two";
  const Answer answer = Read(text, {.chat = ChatParserOptions{}, .stop = {"red blue"}});
  EXPECT_EQ(answer.reasoning, "red blue");
  EXPECT_EQ(answer.content, "one ");
  const Answer call = Read("a red<|tool_call>call:f{a:<|\"|>red blue<|\"|>}<tool_call|>",
                           {.chat = ChatParserOptions{}, .stop = {"red blue"}});
  EXPECT_EQ(call.content, "a red");
  EXPECT_EQ(call.arguments, R"({"a":"red blue"})");
}

TEST(AnswerReader, OneCallEndsTheAnswer) {
  const std::string text = "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{b:2}<tool_call|>";
  EXPECT_EQ(Read(text, {.chat = ChatParserOptions{}}).names, "f;g;");
  const Answer one = Read(text, {.chat = ChatParserOptions{}, .one_call = true});
  EXPECT_EQ(one.names, "f;");
  EXPECT_EQ(one.arguments, R"({"a":1})");
  EXPECT_LT(one.read, DemoTokenizer().Encode(text).size());
}

TEST(AnswerReader, AForcedOpeningIsPartOfTheAnswer) {
  const Answer answer =
      Read("a:1}<tool_call|>", {.chat = ChatParserOptions{}, .forced_opening = "<|tool_call>call:f{"});
  EXPECT_EQ(answer.names, "f;");
  EXPECT_EQ(answer.arguments, R"({"a":1})");
}

TEST(AnswerReader, ChatNeedsATokenizer) {
  EXPECT_THROW(AnswerReader(nullptr, {.chat = ChatParserOptions{}}), Error);
  AnswerReader reader(nullptr, {});
  EXPECT_TRUE(reader.Push(5).empty());
}

}  // namespace
}  // namespace lapidary
