#include "server/chat_request.h"

#include <gtest/gtest.h>

#include "expect_refusal.h"

namespace lapidary {
namespace {

constexpr char kTools[] = R"("tools": [{"type": "function", "function": {"name": "f"}}])";

ChatCompletionRequest Read(const std::string& more) {
  const OrderedJson object = OrderedJson::parse(R"({"messages": [{"role": "user", "content": "Hi"}])" +
                                                (more.empty() ? more : ", " + more) + "}");
  JsonFields fields(object, "");
  return ReadChatCompletion(fields, {.vocab = 100});
}

TEST(ChatRequest, ThinkingComesFromEitherNameAndTheTemplatesGoesBefore) {
  EXPECT_FALSE(Read("").prompt.chat.enable_thinking);
  EXPECT_TRUE(Read(R"("reasoning_effort": "medium")").prompt.chat.enable_thinking);
  EXPECT_FALSE(Read(R"("reasoning_effort": "none")").prompt.chat.enable_thinking);
  EXPECT_TRUE(Read(R"("chat_template_kwargs": {"enable_thinking": true})").prompt.chat.enable_thinking);
  EXPECT_FALSE(Read(R"("reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false})")
                   .prompt.chat.enable_thinking);
  ExpectRefusal("chat_template_kwargs.other", [] { Read(R"("chat_template_kwargs": {"other": 1})"); });
}

TEST(ChatRequest, ToolChoice) {
  EXPECT_FALSE(Read("").prompt.tools_offered);
  const ChatPromptFields automatic = Read(kTools).prompt;
  EXPECT_TRUE(automatic.tools_offered && !automatic.forces_call);
  const ChatPromptFields none = Read(std::string(kTools) + R"(, "tool_choice": "none")").prompt;
  EXPECT_FALSE(none.tools_offered);
  EXPECT_TRUE(none.chat.tools.empty());
  const ChatPromptFields required = Read(std::string(kTools) + R"(, "tool_choice": "required")").prompt;
  EXPECT_TRUE(required.forces_call && !required.forced_name);
  const std::string named = R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})";
  EXPECT_EQ(Read(kTools + named).prompt.forced_name, "f");
  ExpectRefusal("tool_choice", [&] { Read(named.substr(2)); });
  ExpectRefusal("tool_choice.function.name", [] {
    Read(std::string(kTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  });
  ExpectRefusal("tool_choice", [] { Read(std::string(kTools) + R"(, "tool_choice": {"type": "allowed_tools"})"); });
}

TEST(ChatRequest, LengthAndLogprobs) {
  EXPECT_EQ(Read("").sampling.options.max_new_tokens, -1);
  EXPECT_EQ(Read(R"("max_tokens": 5)").sampling.options.max_new_tokens, 5);
  EXPECT_EQ(Read(R"("max_tokens": 5, "max_completion_tokens": 5)").sampling.options.max_new_tokens, 5);
  ExpectRefusal("max_tokens", [] { Read(R"("max_tokens": 5, "max_completion_tokens": 6)"); });
  EXPECT_EQ(Read("").top_logprobs, -1);
  EXPECT_EQ(Read(R"("logprobs": true)").top_logprobs, 0);
  EXPECT_EQ(Read(R"("logprobs": true, "top_logprobs": 20)").top_logprobs, 20);
  EXPECT_EQ(Read(R"("logprobs": false, "top_logprobs": 0)").top_logprobs, -1);
  ExpectRefusal("top_logprobs", [] { Read(R"("top_logprobs": 2)"); });
  EXPECT_TRUE(Read(R"("parallel_tool_calls": false)").one_call);
}

TEST(ChatRequest, TellsWhatIsNotSupported) {
  for (const char* name : {"functions", "function_call", "audio", "verbosity", "web_search_options"}) {
    ExpectRefusal(name, [&] { Read(OrderedJson(name).dump() + ": {}"); });
  }
  ExpectRefusal("modalities", [] { Read(R"("modalities": ["text", "audio"])"); });
  Read(R"("modalities": ["text"])");
  ExpectRefusal("surprise", [] { Read(R"("surprise": 1)"); });
}

}  // namespace
}  // namespace lapidary
