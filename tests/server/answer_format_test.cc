#include "server/answer_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lapidary {
namespace {

using ::testing::ElementsAre;

AnswerDelta Delta(std::vector<ChatEvent> events, std::vector<int32_t> ids = {}) {
  AnswerDelta delta;
  delta.events = std::move(events);
  delta.ids = std::move(ids);
  return delta;
}

ChatEvent Event(ChatEventKind kind, std::string text, size_t call = 0) { return {kind, call, std::move(text)}; }

TEST(AnswerFormat, JoinsNeighboursOfOneKind) {
  using enum ChatEventKind;
  AnswerDelta all;
  Append(Delta({Event(kReasoning, "a")}, {1}), all);
  Append(Delta({Event(kReasoning, "b"), Event(kContent, "c")}, {2, 3}), all);
  Append(Delta({Event(kContent, "d"), Event(kCallName, "f"), Event(kCallArguments, "{"), Event(kCallArguments, "}"),
                Event(kCallEnd, ""), Event(kCallName, "g", 1), Event(kCallArguments, "{}", 1)}),
         all);
  EXPECT_THAT(all.events, ElementsAre(Event(kReasoning, "ab"), Event(kContent, "cd"), Event(kCallName, "f"),
                                      Event(kCallArguments, "{}"), Event(kCallEnd, ""), Event(kCallName, "g", 1),
                                      Event(kCallArguments, "{}", 1)));
  EXPECT_THAT(all.ids, ElementsAre(1, 2, 3));
}

TEST(AnswerFormat, CountsAPromptOnce) {
  AnswerEnd end;
  end.prompt_tokens = 10;
  end.cached_tokens = 8;
  end.answer_tokens = 5;
  end.reasoning_tokens = 2;
  Usage usage(2);
  for (size_t choice = 0; choice < 4; ++choice) usage.Add(choice, end);
  EXPECT_EQ(usage.Json().dump(),
            R"({"prompt_tokens":20,"completion_tokens":20,"total_tokens":40,)"
            R"("prompt_tokens_details":{"cached_tokens":16},"completion_tokens_details":{"reasoning_tokens":8}})");
}

TEST(AnswerFormat, NamesTheEnd) {
  AnswerEnd end;
  end.finish = FinishReason::kStop;
  EXPECT_STREQ(FinishName(end), "stop");
  end.complete_calls = 1;
  EXPECT_STREQ(FinishName(end), "tool_calls");
  end.finish = FinishReason::kLength;
  EXPECT_STREQ(FinishName(end), "length");
}

}  // namespace
}  // namespace lapidary
