#include "server/completion_format.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

AnswerDelta Delta(const char* text, std::vector<int32_t> ids) {
  AnswerDelta delta;
  if (*text != '\0') delta.events = {{ChatEventKind::kContent, 0, text}};
  delta.logprobs.assign(ids.size(), {.logprob = -1, .top = {}});
  delta.ids = std::move(ids);
  return delta;
}

AnswerDelta End(const char* text) {
  AnswerDelta delta = Delta(text, {});
  delta.end.emplace();
  delta.end->finish = FinishReason::kStop;
  return delta;
}

TEST(CompletionFormat, EchoesThePromptBeforeEachOfItsAnswers) {
  CompletionFormatOptions options;
  options.choices_per_prompt = 2;
  CompletionFormat format(options, 4, {{"one ", {1}}, {"two ", {2}}});
  for (size_t i = 0; i < 4; ++i) {
    format.Take(i, Delta("a", {5}));
    format.Take(i, End("b"));
  }
  const OrderedJson whole = format.Whole(Usage(2));
  EXPECT_EQ(whole["choices"][0]["text"], "one ab");
  EXPECT_EQ(whole["choices"][1]["text"], "one ab");
  EXPECT_EQ(whole["choices"][3]["text"], "two ab");
  EXPECT_EQ(whole["choices"][3]["index"], 3);
  EXPECT_EQ(whole["choices"][3]["finish_reason"], "stop");
  EXPECT_TRUE(whole["choices"][3]["logprobs"].is_null());
}

TEST(CompletionFormat, StreamsTextWithItsTokens) {
  CompletionFormatOptions options;
  options.logprobs = options.token_ids = true;
  CompletionFormat format(options, 1, {});
  std::vector<OrderedJson> chunks;
  format.Chunks(0, Delta("a", {5, 6}), chunks);
  format.Chunks(0, Delta("", {7}), chunks);  // text that is held back
  format.Chunks(0, Delta("", {}), chunks);
  format.Chunks(0, End("b"), chunks);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "a");
  EXPECT_EQ(chunks[0]["choices"][0]["token_ids"], OrderedJson::array({5, 6}));
  EXPECT_EQ(chunks[1]["choices"][0]["logprobs"]["tokens"], OrderedJson::array({"token_id:7"}));
  EXPECT_TRUE(chunks[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(chunks[2]["choices"][0]["finish_reason"], "stop");
}

TEST(CompletionFormat, LogprobsOfAnEchoedPromptComeFirst) {
  CompletionFormatOptions options;
  options.logprobs = true;
  CompletionFormat format(options, 1, {{"xy", {3, 4}}});
  AnswerDelta delta = Delta("a", {5});
  delta.prompt_logprobs = {{.logprob = -3, .top = {}}};
  format.Take(0, delta);
  format.Take(0, End(""));
  const OrderedJson logprobs = format.Whole(Usage(1))["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"], OrderedJson::array({nullptr, -3, -1}));
  EXPECT_EQ(logprobs["tokens"].size(), 3u);
}

}  // namespace
}  // namespace lapidary
