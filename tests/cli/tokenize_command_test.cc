// lapidary tokenize and detokenize, with the demo model's tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "run_program.h"

namespace lapidary {
namespace {

const char kText[] = "The capital of France is Paris.\n\n깰 😊";

TEST(TokenizeCommand, RoundTrips) {
  const ProgramResult ids = RunProgram({"tokenize", "--text", kText});
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(RunProgram({"tokenize"}, kText).out, ids.out);
  EXPECT_EQ(RunProgram({"detokenize", "--ids", ids.out}).out, kText);
  EXPECT_EQ(RunProgram({"detokenize"}, ids.out).out, kText);
}

TEST(TokenizeCommand, BosAndSpecialTokens) {
  const Json plain = ParseJson(RunProgram({"tokenize", "--text", "Hi"}).out, "ids");
  Json with_bos = ParseJson(RunProgram({"tokenize", "--bos", "--text", "Hi"}).out, "ids");
  EXPECT_EQ(with_bos[0], 2);
  with_bos.erase(0);
  EXPECT_EQ(with_bos, plain);
  EXPECT_EQ(ParseJson(RunProgram({"tokenize", "--text", "<bos>"}).out, "ids"), Json({2}));
  const Json text = ParseJson(RunProgram({"tokenize", "--no-special", "--text", "<bos>"}).out, "ids");
  EXPECT_GT(text.size(), 1u);
  EXPECT_EQ(RunProgram({"detokenize", "--ids", "2,2"}).out, "<bos><bos>");
  EXPECT_EQ(RunProgram({"detokenize", "--skip-special", "--ids", "2,2"}).out, "");
}

TEST(TokenizeCommand, JsonLines) {
  const std::string lines = Json(kText).dump() + "\n\n\"\"\n\"a\\u0000b\"\n";
  const ProgramResult ids = RunProgram({"tokenize", "--jsonl"}, lines);
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), '\n'), 3);
  const ProgramResult texts = RunProgram({"detokenize", "--jsonl"}, ids.out);
  EXPECT_EQ(texts.out, Json(kText).dump() + "\n\"\"\n\"a\\u0000b\"\n");
}

TEST(TokenizeCommand, BrokenLinesAreErrorsWithTheirNumber) {
  const ProgramResult broken = RunProgram({"tokenize", "--jsonl"}, "\"ok\"\nnot JSON\n");
  EXPECT_EQ(broken.status, 1);
  EXPECT_THAT(broken.err, ::testing::HasSubstr("line 2"));
  ExpectError(RunProgram({"tokenize", "--jsonl"}, "[1]\n"), 1, "line 1");
  ExpectError(RunProgram({"detokenize", "--jsonl"}, "\"text\"\n"), 1, "line 1");
  ExpectError(RunProgram({"detokenize", "--jsonl"}, "[1, 1.5]\n"), 1, "line 1");
  ExpectError(RunProgram({"detokenize", "--jsonl"}, "{\"a\": 1}\n"), 1, "line 1");
}

TEST(TokenizeCommand, ErrorsOfTheTokenizerNameTheLine) {
  const ProgramResult result = RunProgram({"detokenize", "--jsonl"}, "[2]\n[99999999]\n");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, ::testing::HasSubstr("line 2: "));
  EXPECT_THAT(result.err, ::testing::HasSubstr("99999999"));
}

TEST(TokenizeCommand, IdsOutOfRangeAreErrors) {
  ExpectError(RunProgram({"detokenize", "--ids", "99999999"}), 1, "99999999");
  ExpectError(RunProgram({"detokenize", "--ids", "-1"}), 2, "-1");
  ExpectError(RunProgram({"detokenize", "--ids", "x"}), 2, "x");
}

TEST(TokenizeCommand, TextThatIsNotUtf8IsTaken) {
  const ProgramResult ids = RunProgram({"tokenize"}, "a\xff\xfe");
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_GT(ParseJson(ids.out, "ids").size(), 1u);
}

}  // namespace
}  // namespace lapidary
