#include "server/chat_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expect_refusal.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;

constexpr char kCall[] =
    R"({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": "{}"}}], "refusal": null, "audio": null, "function_call": null})";

OrderedJson List(const std::string& items) { return OrderedJson::parse("[" + items + "]"); }

TEST(ChatMessages, TakesConversations) {
  CheckMessages(
      List(R"({"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "t"}]},
                        {"role": "assistant", "content": "a", "reasoning_content": "r"})"));
  CheckMessages(List(std::string(kCall) + R"(, {"role": "tool", "tool_call_id": "c", "content": "15"},
                        {"role": "tool", "name": "f", "content": "16"}, {"role": "user", "content": ""})"));
  CheckMessages(List(R"({"role": "assistant", "reasoning_content": "r"})"));
}

TEST(ChatMessages, NamesThePlaceOfWhatIsWrong) {
  const auto refuses = [](const char* place, const std::string& items) {
    ExpectRefusal(place, [&] { CheckMessages(List(items)); });
  };
  refuses("messages", "");
  refuses("messages[0]", "5");
  refuses("messages[0].role", "{}");
  refuses("messages[0].role", R"({"role": "function", "content": "x"})");
  refuses("messages[1].content", R"({"role": "user", "content": "x"}, {"role": "user", "content": 5})");
  refuses("messages[0].content", R"({"role": "assistant", "content": null})");
  refuses("messages[0].content[1]",
          R"({"role": "user", "content": [{"type": "text", "text": ""}, {"type": "audio"}]})");
  refuses("messages[0].content[0].text", R"({"role": "user", "content": [{"type": "text"}]})");
  refuses("messages[0]", R"({"role": "tool", "tool_call_id": "c", "content": "x"})");
  refuses("messages[1].tool_call_id",
          std::string(kCall) + R"(, {"role": "tool", "tool_call_id": "d", "content": "x"})");
  refuses("messages[1].tool_call_id", std::string(kCall) + R"(, {"role": "tool", "content": "x"})");
  refuses("messages[2]", std::string(kCall) + R"(, {"role": "user", "content": "x"},
                                                   {"role": "tool", "tool_call_id": "c", "content": "x"})");
  refuses("messages[0].tool_calls[0].function.name",
          R"({"role": "assistant", "tool_calls": [{"function": {"name": "", "arguments": "{}"}}]})");
  refuses("messages[0].tool_calls[0].function.arguments",
          R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]})");
}

TEST(ChatMessages, ChecksTools) {
  EXPECT_THAT(CheckTools(List(R"({"type": "function", "function": {"name": "a_b-c", "strict": true}})")),
              ElementsAre("a_b-c"));
  for (const auto& [place, tool] : std::vector<std::pair<const char*, const char*>>{
           {"tools[0]", "5"},
           {"tools[0].type", R"({"type": "web_search"})"},
           {"tools[0].function", R"({"type": "function"})"},
           {"tools[0].function.name", R"({"type": "function", "function": {"name": "a{b"}})"},
           {"tools[0].function.parameters", R"({"type": "function", "function": {"name": "a", "parameters": 5}})"}}) {
    ExpectRefusal(place, [&, t = tool] { CheckTools(List(t)); });
  }
}

}  // namespace
}  // namespace lapidary
