#include "chat/marker_scanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/markers.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MarkerScanner, FindsEachMarker) {
  for (const std::string_view marker : {marker::kTurnClose, marker::kChannelOpen, marker::kChannelClose,
                                        marker::kCallOpen, marker::kCallClose, marker::kResponseOpen, marker::kQuote}) {
    const AnswerMarker kind = MarkerOf(marker);
    EXPECT_NE(kind, AnswerMarker::kNone);
    const std::string text = "<a<" + std::string(marker) + std::string(marker) + "|>";
    EXPECT_THAT(MarkerScanner().Push(text),
                ElementsAre(ScannedText{AnswerMarker::kNone, "<a<"}, ScannedText{kind, std::string(marker)},
                            ScannedText{kind, std::string(marker)}, ScannedText{AnswerMarker::kNone, "|>"}));
  }
  for (const char* other : {"", "<|turn>", "<bos>", "turn|>", "<turn|> "}) {
    EXPECT_EQ(MarkerOf(other), AnswerMarker::kNone) << other;
  }
}

TEST(MarkerScanner, HoldsBackOnlyWhatMayBecomeOne) {
  MarkerScanner scanner;
  EXPECT_THAT(scanner.Push("a <"), ElementsAre(ScannedText{AnswerMarker::kNone, "a "}));
  EXPECT_THAT(scanner.Push("|tool_"), IsEmpty());
  EXPECT_THAT(scanner.Push("x<tu"), ElementsAre(ScannedText{AnswerMarker::kNone, "<|tool_x"}));
  EXPECT_EQ(scanner.Finish(), "<tu");
  EXPECT_EQ(scanner.Finish(), "");
}

}  // namespace
}  // namespace lapidary
