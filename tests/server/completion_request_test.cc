#include "server/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expect_refusal.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;

CompletionRequest Read(const char* text) {
  const OrderedJson object = OrderedJson::parse(text);
  JsonFields fields(object, "");
  return ReadCompletion(fields, {.vocab = 100});
}

TEST(CompletionRequest, EveryFormOfPrompt) {
  EXPECT_THAT(Read(R"({"prompt": "a"})").prompts, ElementsAre(CompletionPrompt("a")));
  EXPECT_THAT(Read(R"({"prompt": ["a", "b"]})").prompts, ElementsAre(CompletionPrompt("a"), CompletionPrompt("b")));
  const CompletionPrompt ids = std::vector<int32_t>{1, 2};
  EXPECT_THAT(Read(R"({"prompt": [1, 2]})").prompts, ElementsAre(ids));
  EXPECT_THAT(Read(R"({"prompt": [[1, 2], "a"]})").prompts, ElementsAre(ids, CompletionPrompt("a")));
}

TEST(CompletionRequest, Lengths) {
  EXPECT_EQ(Read(R"({"prompt": "a"})").sampling.options.max_new_tokens, 16);
  EXPECT_EQ(Read(R"({"prompt": "a", "echo": true, "max_tokens": 0})").sampling.options.max_new_tokens, 0);
  EXPECT_EQ(Read(R"({"prompt": "a", "logprobs": 0})").top_logprobs, 0);
  EXPECT_EQ(Read(R"({"prompt": "a", "suffix": "", "best_of": 2, "n": 2})").sampling.n, 2);
}

TEST(CompletionRequest, RefusesWhatIsWrong) {
  for (const auto& [param, text] :
       std::vector<std::pair<const char*, const char*>>{{"prompt", "{}"},
                                                        {"prompt", R"({"prompt": ""})"},
                                                        {"prompt", R"({"prompt": []})"},
                                                        {"prompt", R"({"prompt": [1, "a"]})"},
                                                        {"prompt", R"({"prompt": [100]})"},
                                                        {"prompt[1]", R"({"prompt": ["a", {}]})"},
                                                        {"max_tokens", R"({"prompt": "a", "max_tokens": 0})"},
                                                        {"logprobs", R"({"prompt": "a", "logprobs": 21})"},
                                                        {"logprobs", R"({"prompt": "a", "logprobs": true})"},
                                                        {"best_of", R"({"prompt": "a", "best_of": 2})"},
                                                        {"suffix", R"({"prompt": "a", "suffix": "b"})"},
                                                        {"messages", R"({"prompt": "a", "messages": []})"}}) {
    ExpectRefusal(param, [&, t = text] { Read(t); });
  }
}

}  // namespace
}  // namespace lapidary
