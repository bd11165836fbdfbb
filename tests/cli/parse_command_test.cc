// lapidary parse, from command line to JSON.
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "run_program.h"

namespace lapidary {
namespace {

TEST(ParseCommand, TakesTheReferenceAnswersApartInAnyPieces) {
  const Json cases = ParseJson(ReadText(DataFolder("chat_parse.json")), "cases");
  std::string input;
  for (const Json& c : cases) input += c.dump() + "\n";
  for (const char* split : {"0", "1", "2", "3", "7", "1000"}) {
    const ProgramResult result = RunProgram({"parse", "--jsonl", "--split", split}, input);
    EXPECT_EQ(result.status, 0) << result.err;
    std::istringstream lines(result.out);
    std::string line;
    for (const Json& c : cases) {
      ASSERT_TRUE(std::getline(lines, line)) << c["name"];
      const Json expected = {{"content", c["content"]}, {"reasoning", c["reasoning"]}, {"tool_calls", c["tool_calls"]}};
      EXPECT_EQ(ParseJson(line, "output"), expected) << c["name"];
    }
    EXPECT_FALSE(std::getline(lines, line));
  }
}

TEST(ParseCommand, WithoutLinesTheInputIsTheAnswer) {
  const auto parse = [](std::vector<std::string> arguments, const std::string& text) {
    arguments.insert(arguments.begin(), "parse");
    const ProgramResult result = RunProgram(arguments, text);
    EXPECT_EQ(result.status, 0) << result.err;
    return ParseJson(result.out, "output");
  };
  EXPECT_EQ(parse({}, "")["content"], "");
  const Json call = parse({}, "a\n<|tool_call>call:f{a:1}<tool_call|>");
  EXPECT_EQ(call["content"], "a\n");
  EXPECT_EQ(call["tool_calls"], ParseJson(R"([{"name": "f", "arguments": {"a": 1}}])", "calls"));
  EXPECT_EQ(parse({"--no-tools"}, "<|tool_call>call:f{}")["content"], "<|tool_call>call:f{}");
  EXPECT_EQ(parse({"--starts-in-reasoning"}, "a<channel|>b")["reasoning"], "a");
}

TEST(ParseCommand, RefusesWhatItCannotRead) {
  ExpectError(RunProgram({"parse", "--jsonl"}, "{\"text\": 1}\n"), 1, "line 1: found no text");
  ExpectError(RunProgram({"parse", "--jsonl"}, "[]\n"), 1, "line 1: found no text");
  ExpectError(RunProgram({"parse", "--jsonl"}, "{\"text\": \"\", \"tools_offered\": 0}\n"), 1, "tools_offered");
  ExpectError(RunProgram({"parse", "--split", "-1"}, ""), 2, "--split");
}

}  // namespace
}  // namespace lapidary
