#include "chat/chat_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/json.h"
#include "chat_data.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a client makes of the events.
struct Streamed {
  std::string content, reasoning;
  std::vector<std::string> names, arguments;
  std::vector<bool> ended;

  bool operator==(const Streamed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Streamed& s) {
  return out << "content " << s.content << " reasoning " << s.reasoning << " calls "
             << ::testing::PrintToString(s.names) << ::testing::PrintToString(s.arguments)
             << ::testing::PrintToString(s.ended);
}

void Collect(const std::vector<ChatEvent>& events, Streamed& out) {
  for (const ChatEvent& event : events) {
    // Each is whole UTF-8, or dump would throw.
    EXPECT_NO_THROW(Json(event.text).dump()) << event.text;
    EXPECT_EQ(event.text.empty(), event.kind == ChatEventKind::kCallEnd);
    switch (event.kind) {
      case ChatEventKind::kContent:
        out.content += event.text;
        break;
      case ChatEventKind::kReasoning:
        out.reasoning += event.text;
        break;
      case ChatEventKind::kCallName:
        ASSERT_EQ(event.call, out.names.size());
        out.names.push_back(event.text);
        out.arguments.emplace_back();
        out.ended.push_back(false);
        break;
      case ChatEventKind::kCallArguments:
        ASSERT_EQ(event.call + 1, out.names.size());
        out.arguments.back() += event.text;
        break;
      case ChatEventKind::kCallEnd:
        ASSERT_EQ(event.call + 1, out.names.size());
        out.ended.back() = true;
        break;
    }
  }
}

Streamed Feed(const std::vector<std::string_view>& pieces, const ChatParserOptions& options) {
  ChatParser parser(options);
  Streamed out;
  for (const std::string_view piece : pieces) Collect(parser.Push(piece), out);
  Collect(parser.Finish(), out);
  EXPECT_THAT(parser.Finish(), IsEmpty());
  const ParsedAnswer& answer = parser.answer();
  EXPECT_EQ(answer.content, out.content);
  EXPECT_EQ(answer.reasoning, out.reasoning);
  EXPECT_EQ(answer.tool_calls.size(), out.names.size());
  for (size_t i = 0; i < answer.tool_calls.size(); ++i) {
    EXPECT_EQ(answer.tool_calls[i].name, out.names[i]);
    EXPECT_EQ(answer.tool_calls[i].arguments, out.arguments[i]);
    EXPECT_EQ(answer.tool_calls[i].complete, out.ended[i]);
  }
  return out;
}

// The same under every size of piece and every cut in two.
Streamed FeedAllWays(std::string_view text, const ChatParserOptions& options = {}) {
  const Streamed whole = Feed({text}, options);
  for (size_t size = 1; size <= text.size(); ++size) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
    EXPECT_EQ(Feed(pieces, options), whole) << "pieces of " << size;
    EXPECT_EQ(Feed({text.substr(0, size), text.substr(size)}, options), whole) << "cut at " << size;
  }
  return whole;
}

Streamed Text(const std::string& content, const std::string& reasoning = "") {
  return {content, reasoning, {}, {}, {}};
}

Streamed Call(const std::string& name, const std::string& arguments, bool ended = true) {
  return {"", "", {name}, {arguments}, {ended}};
}

TEST(ChatParser, TakesTheReferenceAnswersApart) {
  const OrderedJson cases = ReadTestData("chat_parse.json");
  ASSERT_GE(cases.size(), 15u);
  for (const OrderedJson& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const Streamed found =
        FeedAllWays(c["text"].get<std::string>(), {.starts_in_reasoning = c.value("starts_in_reasoning", false),
                                                   .tools_offered = c.value("tools_offered", true)});
    EXPECT_EQ(found.content, c["content"].get<std::string>());
    EXPECT_EQ(found.reasoning, c["reasoning"].get<std::string>());
    ASSERT_EQ(found.names.size(), c["tool_calls"].size());
    for (size_t i = 0; i < found.names.size(); ++i) {
      EXPECT_EQ(found.names[i], c["tool_calls"][i]["name"].get<std::string>());
      EXPECT_EQ(ParseJson(found.arguments[i], "arguments"), Json(c["tool_calls"][i]["arguments"]));
      EXPECT_TRUE(found.ended[i]);
    }
  }
}

TEST(ChatParser, StreamsAsSoonAsItIsCertain) {
  ChatParser parser({});
  using Kind = ChatEventKind;
  const auto event = [](Kind kind, const std::string& text, size_t call = 0) { return ChatEvent{kind, call, text}; };
  EXPECT_THAT(parser.Push("<|channel>"), IsEmpty());
  EXPECT_THAT(parser.Push("thou"), IsEmpty());
  EXPECT_THAT(parser.Push("ght\na"), ElementsAre(event(Kind::kReasoning, "a")));
  EXPECT_THAT(parser.Push("b\n"), ElementsAre(event(Kind::kReasoning, "b")));
  EXPECT_THAT(parser.Push("<channel"), IsEmpty());
  EXPECT_THAT(parser.Push("|>Let"), ElementsAre(event(Kind::kContent, "Let")));
  EXPECT_THAT(parser.Push(" me<"), ElementsAre(event(Kind::kContent, " me")));
  EXPECT_THAT(parser.Push("|tool_call>call:f"), IsEmpty());
  EXPECT_THAT(parser.Push("{"), ElementsAre(event(Kind::kCallName, "f"), event(Kind::kCallArguments, "{")));
  EXPECT_THAT(parser.Push("a:<|\"|>x\ny"), ElementsAre(event(Kind::kCallArguments, R"("a":"x\ny)")));
  EXPECT_THAT(parser.Push("<|\"|>,n:1"), ElementsAre(event(Kind::kCallArguments, "\"")));
  EXPECT_THAT(parser.Push("2}"), ElementsAre(event(Kind::kCallArguments, ",\"n\":12}"), event(Kind::kCallEnd, "")));
  EXPECT_THAT(
      parser.Push("<tool_call|><|tool_call>call:g{}"),
      ElementsAre(event(Kind::kCallName, "g", 1), event(Kind::kCallArguments, "{}", 1), event(Kind::kCallEnd, "", 1)));
  EXPECT_FALSE(parser.done());
  EXPECT_THAT(parser.Push("<tool_call|>ok<turn|>not this"), ElementsAre(event(Kind::kContent, "ok")));
  EXPECT_TRUE(parser.done());
  EXPECT_THAT(parser.Push("nor this"), IsEmpty());
}

// Field report 18: a step may span calls, text and thought.
TEST(ChatParser, SeveralCallsKeepApart) {
  const Streamed found = FeedAllWays(
      "<|channel>thought\nboth\n<channel|>So:<|tool_call>call:a{x:<|\"|>깰<|\"|>}<tool_call|>"
      "<|tool_call>call:a{x:<|\"|>👩‍👩‍👧<|\"|>}<tool_call|>done");
  EXPECT_EQ(
      found,
      (Streamed{"So:done", "both", {"a", "a"}, {R"({"x":"깰"})", R"({"x":"👩‍👩‍👧"})"}, {true, true}}));
}

// Field report 11.
TEST(ChatParser, TheThoughtsLabelAndMarkersStayInside) {
  EXPECT_EQ(FeedAllWays("<|channel>thought\n1\n\n2\n<channel|>\nA"), Text("\nA", "1\n\n2"));
  EXPECT_EQ(FeedAllWays("<|channel>thought<channel|>A"), Text("A"));
  EXPECT_EQ(FeedAllWays("<|channel>thought\n<channel|>A"), Text("A"));
  EXPECT_EQ(FeedAllWays("<|channel><channel|>A"), Text("A"));
  EXPECT_EQ(FeedAllWays("<|channel>thou"), Text(""));
  EXPECT_EQ(FeedAllWays("<|channel>"), Text(""));
  EXPECT_EQ(FeedAllWays("<|channel>thoughtful<channel|>A"), Text("A", "thoughtful"));
  EXPECT_EQ(FeedAllWays("<|channel>thought\nx\n"), Text("", "x\n"));
  EXPECT_EQ(FeedAllWays("<|channel>thought\nx\n<turn|>"), Text("", "x"));
  EXPECT_EQ(FeedAllWays("A<|channel>thought\nx<channel|>B"), Text("AB", "x"));
  EXPECT_EQ(FeedAllWays("<channel|>A"), Text("A"));
}

// Field report 12.
TEST(ChatParser, MayStartInTheThought) {
  const ChatParserOptions inside = {.starts_in_reasoning = true};
  EXPECT_EQ(FeedAllWays("15C it is.\n<channel|>It is 15C.", inside), Text("It is 15C.", "15C it is."));
  EXPECT_EQ(FeedAllWays("<|channel>thought\nx<channel|>A", inside), Text("A", "x"));
  EXPECT_EQ(FeedAllWays("x", inside), Text("", "x"));
  EXPECT_EQ(FeedAllWays("", inside), Text(""));
}

TEST(ChatParser, ACallInsideTheThoughtEndsIt) {
  EXPECT_EQ(FeedAllWays("<|channel>thought\nnow\n<|tool_call>call:f{}<tool_call|>A"),
            (Streamed{"A", "now", {"f"}, {"{}"}, {true}}));
  EXPECT_EQ(FeedAllWays("<|channel>thought\nuse <|tool_call> here<channel|>A"), Text("A", "use <|tool_call> here"));
  EXPECT_EQ(FeedAllWays("<|channel>thought\na\n<|tool_call>\nb<channel|>A"), Text("A", "a\n<|tool_call>\nb"));
}

TEST(ChatParser, WhatIsNoCallIsText) {
  for (const char* text : {"The <|tool_call> marker", "<|tool_call>call", "<|tool_call>call:", "<|tool_call>call:f"}) {
    EXPECT_EQ(FeedAllWays(std::string(text) + " x y{}"), Text(std::string(text) + " x y{}")) << text;
  }
  EXPECT_EQ(FeedAllWays("<|tool_call>call:{a:1}"), Text("<|tool_call>call:{a:1}"));
  EXPECT_EQ(FeedAllWays("<|tool_call><turn|>"), Text("<|tool_call>"));
  EXPECT_EQ(FeedAllWays("a<|tool_call>call:x<|tool_call>call:f{}"),
            (Streamed{"a<|tool_call>call:x", "", {"f"}, {"{}"}, {true}}));
  const std::string long_name(300, 'n');
  EXPECT_EQ(FeedAllWays("<|tool_call>call:" + long_name + "{}"), Text("<|tool_call>call:" + long_name + "{}"));
}

TEST(ChatParser, WithoutToolsTheirMarkersAreText) {
  const std::string text = "<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|><|tool_response>";
  EXPECT_EQ(FeedAllWays(text + "<turn|>", {.tools_offered = false}), Text(text));
}

TEST(ChatParser, BlanksAroundANameAndAMissingBodyPass) {
  EXPECT_EQ(FeedAllWays("<|tool_call> call: f {a:1}<tool_call|>"), Call("f", R"({"a":1})"));
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f<tool_call|>"), Call("f", "{}"));
}

// Field report 16.
TEST(ChatParser, ACallThatIsCutOffIsClosedButNotComplete) {
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{query:<|\"|>abc"), Call("f", R"({"query":"abc"})", false));
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{query:<|\"|>abc<|\"|>,l:[1,{k:tr"),
            Call("f", R"({"query":"abc","l":[1,{"k":"tr"}]})", false));
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{"), Call("f", "{}", false));
  EXPECT_EQ(FeedAllWays("a<|tool_call>call:f"), Text("a"));
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{a:[1<turn|>"), Call("f", R"({"a":[1]})", false));
}

TEST(ChatParser, ACallEndsAtItsMarkerWhateverIsOpen) {
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{a:[<|\"|>x<tool_call|>B"),
            (Streamed{"B", "", {"f"}, {R"({"a":["x"]})"}, {true}}));
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{a:1}}] junk<tool_call|>B"),
            (Streamed{"B", "", {"f"}, {R"({"a":1})"}, {true}}));
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{a:1}<|tool_call>call:g{}"),
            (Streamed{"", "", {"f", "g"}, {R"({"a":1})", "{}"}, {true, true}}));
}

TEST(ChatParser, MarkersInsideAStringAreText) {
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{a:<|\"|><turn|><|channel>thought\n<|tool_call>call:x{}<|\"|>}<tool_call|>"),
            Call("f", R"({"a":"<turn|><|channel>thought\n<|tool_call>call:x{}"})"));
}

TEST(ChatParser, NothingIsHeldBackAtTheEnd) {
  for (const char* text : {"a <", "a <|", "a <|tool_cal", "<turn", "a\n", "<<turn", "<tool_call"}) {
    EXPECT_EQ(FeedAllWays(text), Text(text)) << text;
  }
}

// Field report 7.
TEST(ChatParser, BrokenUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(FeedAllWays("a\xEA\xB9\xB0\xEA\xB9z\xFFz\xF0\x9F"), Text("a깰\uFFFDz\uFFFDz\uFFFD"));
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{k:<|\"|>\xEA\xB9<|\"|>}"), Call("f", "{\"k\":\"\uFFFD\"}"));
}

// With tokens at hand only special ones are markers.
TEST(ChatParser, TellsSpecialTokensFromTextThatLooksAlike) {
  ChatParser parser({});
  Streamed out;
  const auto text = [&](std::string_view piece) { Collect(parser.PushToken(piece, false), out); };
  const auto special = [&](std::string_view piece) { Collect(parser.PushToken(piece, true), out); };
  special("<|channel>");
  text("thought\nhow <channel|> looks\n");
  special("<channel|>");
  special("<pad>");
  text("<|tool_call>call:no{}<turn|>");
  special("<|tool_call>");
  text("call:f{a:");
  special("<|\"|>");
  text("<|\"|>}<tool_call|>");
  special("<|\"|>");
  text("}");
  special("<tool_call|>");
  text("end");
  special("<|tool_response>");
  text("not this");
  Collect(parser.Finish(), out);
  EXPECT_EQ(out, (Streamed{"<|tool_call>call:no{}<turn|>end",
                           "how <channel|> looks",
                           {"f"},
                           {R"({"a":"<|\"|>}<tool_call|>"})"},
                           {true}}));
}

TEST(ChatParser, GoesOnBehindItsEndWhenTold) {
  const ChatParserOptions options{.ends_with_turn = false};
  EXPECT_EQ(FeedAllWays("one<turn|> two<|tool_response> three", options), Text("one two three"));
  EXPECT_EQ(FeedAllWays("<|channel>thought\nx<turn|>y<channel|>z", options), Text("z", "xy"));
  Streamed cut_off = Call("f", R"({"a":[1]})", false);
  cut_off.content = "on";
  EXPECT_EQ(FeedAllWays("<|tool_call>call:f{a:[1<turn|>on", options), cut_off);
  ChatParser parser(options);
  Streamed out;
  Collect(parser.PushToken("<turn|>", true), out);
  EXPECT_FALSE(parser.done());
  Collect(parser.PushToken("more", false), out);
  EXPECT_EQ(out, Text("more"));
}

TEST(ChatParser, SpecialTokensEndAStringThatIsOpen) {
  for (const char* end : {"<turn|>", "<|tool_response>"}) {
    ChatParser parser({});
    Streamed out;
    Collect(parser.Push("<|tool_call>call:f{a:<|\"|>x"), out);
    Collect(parser.PushToken(end, true), out);
    EXPECT_TRUE(parser.done());
    EXPECT_EQ(out, Call("f", R"({"a":"x"})", false));
  }
}

}  // namespace
}  // namespace lapidary
