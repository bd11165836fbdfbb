#include "generation/answer_text.h"

#include <gtest/gtest.h>

#include "small_tokenizer.h"

namespace lapidary {
namespace {

using Small = SmallTokenizer;

TEST(AnswerText, HoldsBackHalfCharactersAndBeginningsOfStops) {
  const Tokenizer tokenizer = Tokenizer::Parse(Small::JsonText(), "test");
  AnswerText text(&tokenizer, {" gamma"});
  EXPECT_EQ(text.Push(Small::Byte(0xc3)), "");
  EXPECT_EQ(text.Push(Small::Byte(0xa9)), "é");
  EXPECT_EQ(text.Push(Small::Character(' ')), "");
  EXPECT_EQ(text.Push(Small::Word("alpha")), " alpha");
  EXPECT_EQ(text.Push(100'000), "");  // padding of the table
  EXPECT_EQ(text.Push(Small::Word(" gamma")), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.Finish(), "");
}

TEST(AnswerText, TheEndGivesOutWhatWasHeldBack) {
  const Tokenizer tokenizer = Tokenizer::Parse(Small::JsonText(), "test");
  AnswerText text(&tokenizer, {" gamma"});
  EXPECT_EQ(text.Push(Small::Character(' ')), "");
  EXPECT_EQ(text.Push(Small::Byte(0xea)), "");
  EXPECT_EQ(text.Finish(), " \uFFFD");
}

TEST(AnswerText, WithoutATokenizerThereIsNone) {
  AnswerText text(nullptr, {});
  EXPECT_EQ(text.Push(5) + text.Finish(), "");
}

}  // namespace
}  // namespace lapidary
