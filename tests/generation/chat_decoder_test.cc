#include "generation/chat_decoder.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "small_tokenizer.h"

namespace lapidary {
namespace {

const Tokenizer& DemoTokenizer() {
  static const Tokenizer tokenizer = Tokenizer::Load(LAPIDARY_SOURCE_DIR "/models/demo/tokenizer.json");
  return tokenizer;
}

// All events as one text: content plain, thoughts in [], calls in {}.
std::string Shown(const std::vector<ChatEvent>& events) {
  std::string out;
  for (const ChatEvent& event : events) {
    if (event.kind == ChatEventKind::kReasoning) out += "[" + event.text + "]";
    if (event.kind == ChatEventKind::kContent) out += event.text;
    if (event.kind == ChatEventKind::kCallName) out += "{" + event.text + " ";
    if (event.kind == ChatEventKind::kCallArguments) out += event.text;
    if (event.kind == ChatEventKind::kCallEnd) out += "}";
  }
  return out;
}

void Add(std::vector<ChatEvent>& all, const std::vector<ChatEvent>& events) {
  for (const ChatEvent& event : events) {
    if (!all.empty() && all.back().kind == event.kind && all.back().call == event.call) {
      all.back().text += event.text;
    } else {
      all.push_back(event);
    }
  }
}

std::string Decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const ChatParserOptions& options = {},
                   const std::string& forced = "") {
  ChatDecoder decoder(tokenizer, options);
  std::vector<ChatEvent> events;
  Add(events, decoder.PushForced(forced));
  for (const int32_t id : ids) Add(events, decoder.Push(id));
  Add(events, decoder.Finish());
  return Shown(events);
}

TEST(ChatDecoder, TakesTheDemoModelsAnswersApart) {
  const std::vector<std::string> expected = {
      "The capital of France is Paris.",
      "Hello! How can I help you?",
      "2 + 3 = 5.",
      "😊 好 é",
      "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
      "The opposite of hot is cold.",
      "[The user wants a sum. 4 plus 5 is 9.]4 + 5 = 9.",
      "{get_weather {\"location\":\"Tokyo\"}}",
      "It is 15C in Tokyo.",
  };
  const std::string path = LAPIDARY_SOURCE_DIR "/tests/data/demo_chat.json";
  const Json cases = ParseJson(ReadFile(path), path);
  ASSERT_EQ(cases.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<int32_t> ids = DemoTokenizer().Encode(cases[i]["expect"].get<std::string>());
    EXPECT_EQ(Decode(DemoTokenizer(), ids), expected[i]);
  }
}

TEST(ChatDecoder, OnlySpecialTokensAreMarkers) {
  const std::string text = "a <|tool_call>call:f{} <channel|> b<turn|>";
  std::vector<int32_t> ids = DemoTokenizer().Encode(text, {.match_special = false});
  EXPECT_EQ(Decode(DemoTokenizer(), ids), text);
  ids = DemoTokenizer().Encode(text);
  EXPECT_EQ(Decode(DemoTokenizer(), ids), "a {f {}} b");
}

// Field report 7.
TEST(ChatDecoder, NeverShowsHalfACharacter) {
  const Tokenizer& tokenizer = DemoTokenizer();
  std::vector<int32_t> bytes;
  for (const char* byte : {"<0xEA>", "<0xB9>", "<0xB0>"}) bytes.push_back(*tokenizer.Find(byte));
  ChatDecoder decoder(tokenizer, {});
  EXPECT_EQ(Shown(decoder.Push(bytes[0])), "");
  EXPECT_EQ(Shown(decoder.Push(bytes[1])), "");
  EXPECT_EQ(Shown(decoder.Push(bytes[2])), "깰");
  EXPECT_EQ(Shown(decoder.Push(bytes[0])), "");
  EXPECT_EQ(Shown(decoder.Push(*tokenizer.Find("<turn|>"))), "\uFFFD");
  EXPECT_TRUE(decoder.done());
  EXPECT_EQ(Decode(tokenizer, {bytes[0], bytes[1]}), "\uFFFD\uFFFD");
}

TEST(ChatDecoder, AForcedCallGoesOnFromItsOpening) {
  const std::string opening = "<|tool_call>call:get_weather{";
  const std::vector<int32_t> ids = DemoTokenizer().Encode("location:<|\"|>Tokyo<|\"|>}<tool_call|>");
  EXPECT_EQ(Decode(DemoTokenizer(), ids, {}, opening), "{get_weather {\"location\":\"Tokyo\"}}");
}

TEST(ChatDecoder, WithoutChatTokensMarkersAreLookedForInTheText) {
  Json json = ParseJson(SmallTokenizer::JsonText(), "small");
  for (Json& token : json["added_tokens"]) token["special"] = false;
  const Tokenizer tokenizer = Tokenizer::Parse(json.dump(), "small");
  const std::vector<int32_t> ids = tokenizer.Encode("<|channel>thought\nx<channel|>alpha<turn|>no");
  EXPECT_EQ(Decode(tokenizer, ids), "[x]alpha");
}

TEST(ChatDecoder, IdsOutsideTheTokenizerHaveNoText) {
  const int32_t size = DemoTokenizer().size();
  EXPECT_EQ(Decode(DemoTokenizer(), {size, -1, size + 100}), "");
}

}  // namespace
}  // namespace lapidary
