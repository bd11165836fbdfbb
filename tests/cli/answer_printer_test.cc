#include "cli/answer_printer.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

using Kind = ChatEventKind;

std::string Printed(const AnswerStyle& style, const std::vector<ChatEvent>& events) {
  std::string out;
  AnswerPrinter printer(style, [&](std::string_view text) { out += text; });
  for (const ChatEvent& event : events) printer.Add(event);
  printer.Finish();
  return out;
}

const std::vector<ChatEvent> kAnswer = {{Kind::kReasoning, 0, "hm"},
                                        {Kind::kReasoning, 0, "m"},
                                        {Kind::kContent, 0, "A"},
                                        {Kind::kContent, 0, "B\x1b[31m"}};

TEST(AnswerPrinter, ThoughtsAreDimOnATerminal) {
  EXPECT_EQ(Printed({.show_thought = true, .dim_thought = true, .plain_controls = true}, kAnswer),
            "\033[2mhmm\033[0m\nAB\uFFFD[31m\n");
  EXPECT_EQ(Printed({.show_thought = true}, kAnswer), "hmm\nAB\x1b[31m\n");
  EXPECT_EQ(Printed({}, kAnswer), "AB\x1b[31m\n");
}

TEST(AnswerPrinter, AThoughtThatIsCutOffDoesNotStayDim) {
  EXPECT_EQ(Printed({.show_thought = true, .dim_thought = true}, {kAnswer[0]}), "\033[2mhm\033[0m\n");
  EXPECT_EQ(Printed({.show_thought = true, .dim_thought = true}, {}), "\n");
}

TEST(WithoutControls, LeavesTextAlone) {
  EXPECT_EQ(WithoutControls("a\tb\né깰😊\u00a0"), "a\tb\né깰😊\u00a0");
  EXPECT_EQ(WithoutControls(std::string_view("\x1b\x07\r\0\x7f\u009b", 7)), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace lapidary
