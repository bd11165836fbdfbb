#include "chat/prompt.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

TEST(ChatPrompt, JoinsNeighbouringTexts) {
  ChatPrompt prompt;
  prompt.AddText("");
  prompt.AddMarker("<bos>");
  prompt.AddText("a");
  prompt.AddText("");
  prompt.AddText("b");
  prompt.AddMarker("<|turn>");
  prompt.AddMarker("<turn|>");
  const std::vector<PromptPiece> expected = {{true, "<bos>"}, {false, "ab"}, {true, "<|turn>"}, {true, "<turn|>"}};
  EXPECT_EQ(prompt.pieces, expected);
  EXPECT_EQ(prompt.Text(), "<bos>ab<|turn><turn|>");
}

}  // namespace
}  // namespace lapidary
