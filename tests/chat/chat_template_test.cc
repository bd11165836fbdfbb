#include "chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "chat_data.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

ChatRequest RequestOf(const OrderedJson& input) {
  ChatRequest request;
  request.messages = input.at("messages");
  if (input.contains("tools")) request.tools = input["tools"];
  request.enable_thinking = input.value("enable_thinking", false);
  request.add_generation_prompt = input.value("add_generation_prompt", true);
  request.preserve_thinking = input.value("preserve_thinking", false);
  return request;
}

ChatRequest ParseRequest(const std::string& json) { return RequestOf(ParseOrderedJson(json, "request")); }

std::string RenderText(const std::string& json, ChatVariant variant = ChatVariant::kSmall) {
  return ChatTemplate(variant).Render(ParseRequest(json)).Text();
}

TEST(ChatTemplate, PrintsTheReferencePrompts) {
  const OrderedJson cases = ReadTestData("chat_render.json");
  ASSERT_GE(cases.size(), 24u);
  for (const OrderedJson& c : cases) {
    for (const auto& [variant, name] :
         {std::pair(ChatVariant::kSmall, "small"), std::pair(ChatVariant::kLarge, "large")}) {
      SCOPED_TRACE(c["name"].get<std::string>() + " " + name);
      const OrderedJson& expected = c["expected"][name];
      if (expected.is_string()) {
        EXPECT_EQ(ChatTemplate(variant).Render(RequestOf(c["input"])).Text(), expected.get<std::string>());
      } else {
        EXPECT_THROW(ChatTemplate(variant).Render(RequestOf(c["input"])), Error);
      }
    }
  }
}

TEST(ChatTemplate, KeepsMarkersApartFromWhatUsersSay) {
  const ChatPrompt prompt = ChatTemplate(ChatVariant::kSmall)
                                .Render(ParseRequest(R"({"messages": [{"role": "user", "content": "a<turn|>b"}]})"));
  const std::vector<PromptPiece> expected = {{true, "<bos>"},   {true, "<|turn>"}, {false, "user\na<turn|>b"},
                                             {true, "<turn|>"}, {false, "\n"},     {true, "<|turn>"},
                                             {false, "model\n"}};
  EXPECT_EQ(prompt.pieces, expected);
}

// Strings of tools, calls and results are others' words too.
TEST(ChatTemplate, MarkersInToolTextsAreText) {
  const std::string text = "x<|\\\"|>}<tool_call|><turn|>";
  const ChatPrompt prompt =
      ChatTemplate(ChatVariant::kSmall)
          .Render(ParseRequest(R"({"tools": [{"function": {"name": "f", "description": ")" + text +
                               R"("}}], "messages": [{"role": "assistant", "content": ")" + text +
                               R"(", "tool_calls": [{"function": {"name": "f", "arguments":
                                                     {"<|turn>": ")" +
                               text + R"("}}}]}, {"role": "tool", "content": ")" + text + R"("}]})"));
  int texts = 0;
  for (const PromptPiece& piece : prompt.pieces) {
    if (!piece.is_marker && piece.text.find("x<|\"|>}<tool_call|><turn|>") != std::string::npos) ++texts;
    if (piece.is_marker) {
      EXPECT_EQ(piece.text.find('x'), std::string::npos);
    }
  }
  EXPECT_EQ(texts, 4);
}

TEST(ChatTemplate, SaysWhetherThePromptEndsInTheThought) {
  const std::string turn = R"({"role": "user", "content": "w"}, {"role": "assistant", "tool_calls":
      [{"id": "1", "function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "tool_call_id": "1", "content": "r"})";
  for (const char* thinking : {"true", "false"}) {
    ChatRequest request = ParseRequest("{\"messages\": [" + turn + "], \"enable_thinking\": " + thinking + "}");
    EXPECT_EQ(ChatTemplate(ChatVariant::kLarge).Render(request).starts_in_reasoning, request.enable_thinking);
    request.add_generation_prompt = false;
    EXPECT_FALSE(ChatTemplate(ChatVariant::kLarge).Render(request).starts_in_reasoning);
  }
  EXPECT_FALSE(ChatTemplate(ChatVariant::kLarge)
                   .Render(ParseRequest(R"({"messages": [], "enable_thinking": true})"))
                   .starts_in_reasoning);
}

TEST(ChatTemplate, SaysWhetherThereIsMedia) {
  const auto has_media = [](const std::string& part) {
    return ChatTemplate(ChatVariant::kSmall)
        .Render(ParseRequest(R"({"messages": [{"role": "user", "content": [)" + part + "]}]}"))
        .has_media;
  };
  EXPECT_TRUE(has_media(R"({"type": "input_audio"})"));
  EXPECT_TRUE(has_media(R"({"type": "video"})"));
  EXPECT_FALSE(has_media(R"({"type": "text", "text": "<|image|>"})"));
}

// Field report 13.
TEST(ChatTemplate, ArgumentsMayBeAString) {
  const auto call = [](const std::string& arguments) {
    const std::string text = RenderText(R"({"add_generation_prompt": false, "messages": [{"role": "assistant",
        "tool_calls": [{"function": {"name": "f", "arguments": )" +
                                        arguments + "}}]}]}");
    const size_t begin = text.find("call:");
    return text.substr(begin, text.find("<tool_call|>") - begin);
  };
  EXPECT_EQ(call(R"("{\"b\": [1, 2.50, null], \"A\": true}")"), "call:f{A:true,b:[1,2.5,null]}");
  for (const char* none : {R"("")", R"(" \n")", "null", R"("null")", "{}", R"("{}")"}) {
    EXPECT_EQ(call(none), "call:f{}") << none;
  }
}

TEST(ChatTemplate, SortsKeysWithoutRegardToCase) {
  const std::string text =
      RenderText(R"({"add_generation_prompt": false, "messages": [{"role": "assistant", "tool_calls":
      [{"function": {"name": "f", "arguments": {"b": 1, "É": 2, "a": 3, "A": 4, "B": 5, "é": 6, "_": 7}}}]}]})");
  EXPECT_THAT(text, HasSubstr("{_:7,a:3,A:4,b:1,B:5,É:2,é:6}"));
}

void ExpectRefused(const std::string& json, const std::string& part) {
  try {
    RenderText(json);
    ADD_FAILURE() << "rendered: " << json;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(ChatTemplate, NamesThePlaceOfAFault) {
  const auto refused = [](const std::string& message, const std::string& part) {
    SCOPED_TRACE(message);
    ExpectRefused(R"({"messages": [{"role": "user", "content": "x"}, )" + message + "]}", "messages[1]" + part);
  };
  const auto call = [](const std::string& function) {
    return R"({"role": "assistant", "tool_calls": [)" + function + "]}";
  };
  refused("1", ": found number");
  refused("{}", ".role: found nothing");
  refused(R"({"role": null})", ".role: found null");
  refused(R"({"role": "user", "content": {}})", ".content: found object");
  refused(R"({"role": "user", "content": ["text"]})", ".content: found string");
  refused(R"({"role": "assistant", "content": [{"type": "text"}]})", ".content: found nothing");
  refused(R"({"role": "assistant", "reasoning": 1})", ".reasoning: found number");
  refused(R"({"role": "assistant", "reasoning_content": ["x"]})", ".reasoning_content: found array");
  refused(R"({"role": "assistant", "tool_calls": {"a": 1}})", ".tool_calls: found object");
  refused(call("{}"), ".tool_calls[0].function.name: found nothing");
  refused(call(R"({"function": {"name": "f"}})"), ".tool_calls[0].function.arguments: found nothing");
  refused(call(R"({"function": {"name": "f", "arguments": [1]}})"), ".tool_calls[0].function.arguments: found array");
  refused(call(R"({"function": {"name": "f", "arguments": "[1]"}})"), ".tool_calls[0].function.arguments: found array");
  refused(call(R"({"function": {"name": "f", "arguments": "{\"a\":"}})"),
          ".tool_calls[0].function.arguments: not valid");
  ExpectRefused(R"({"messages": {}})", "messages: found object");
  ExpectRefused(R"({"messages": [], "tools": {}})", "tools: found object");
  ExpectRefused(R"({"messages": [], "tools": [{}]})", "tools[0].function: found nothing");
  ExpectRefused(R"({"messages": [], "tools": [{"function": {"name": "f", "parameters": {"properties": [1]}}}]})",
                "tools[0].function.parameters: found array");
}

TEST(ForceToolCall, OpensACallAfterThePrompt) {
  const ChatTemplate chat(ChatVariant::kSmall);
  ChatPrompt prompt = chat.Render(ParseRequest(R"({"messages": []})"));
  const std::string before = prompt.Text();
  EXPECT_EQ(ForceToolCall(prompt, "get_weather"), "<|tool_call>call:get_weather{");
  EXPECT_EQ(prompt.Text(), before + "<|tool_call>call:get_weather{");
  EXPECT_EQ(prompt.pieces.end()[-2], (PromptPiece{true, "<|tool_call>"}));

  prompt = chat.Render(ParseRequest(R"({"messages": []})"));
  EXPECT_EQ(ForceToolCall(prompt, std::nullopt), "<|tool_call>call:");
  EXPECT_EQ(prompt.Text(), before + "<|tool_call>call:");
}

TEST(ForceToolCall, LeavesTheThoughtFirst) {
  ChatPrompt prompt;
  prompt.AddText("thought\n");
  prompt.starts_in_reasoning = true;
  EXPECT_EQ(ForceToolCall(prompt, "f"), "<|tool_call>call:f{");
  EXPECT_EQ(prompt.Text(), "thought\n<channel|><|tool_call>call:f{");
  EXPECT_FALSE(prompt.starts_in_reasoning);
}

TEST(ForceToolCall, RefusesNamesThatCannotStandInACall) {
  for (const char* name : {"", "a b", "a{", "}", "<turn|>", "a\n"}) {
    ChatPrompt prompt;
    EXPECT_THROW(ForceToolCall(prompt, name), Error) << name;
    EXPECT_TRUE(prompt.pieces.empty());
  }
}

}  // namespace
}  // namespace lapidary
