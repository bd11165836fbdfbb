// lapidary template, from command line to text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "run_program.h"

namespace lapidary {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kHi = R"({"messages": [{"role": "user", "content": "Hi"}]})";

std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(ParseJson(line, "output"));
  return lines;
}

std::vector<Json> TemplateLines(const std::string& input, std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), {"template", "--jsonl"});
  const ProgramResult result = RunProgram(arguments, input);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Lines(result.out);
}

TEST(TemplateCommand, PrintsTheReferencePrompts) {
  const Json cases = ParseJson(ReadText(DataFolder("chat_render.json")), "cases");
  std::string input;
  std::vector<Json> expected;
  for (const Json& c : cases) {
    for (const char* variant : {"small", "large"}) {
      Json line = c["input"];
      line["variant"] = variant;
      input += line.dump() + "\n";
      expected.push_back(c["expected"][variant]);
    }
  }
  EXPECT_EQ(TemplateLines(input), expected);
}

TEST(TemplateCommand, EachBadLineGivesAnError) {
  const std::vector<Json> lines =
      TemplateLines(std::string(kHi) + "\n\n{\n[]\n{}\n" + R"({"messages": [], "enable_thinking": 1})" + "\n" +
                    R"({"messages": [], "variant": "medium"})" + "\n" + R"({"messages": [{"role": "user"}, {}]})" +
                    "\n" + kHi + "\n");
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[0], "<bos><|turn>user\nHi<turn|>\n<|turn>model\n");
  EXPECT_EQ(lines[7], lines[0]);
  const char* parts[] = {"line 3: not valid JSON", "line 4: found array",       "line 5: found no messages",
                         "enable_thinking: found", "variant: found \"medium\"", "messages[1].role: found nothing"};
  for (size_t i = 0; i < 6; ++i) EXPECT_THAT(lines[i + 1]["error"].get<std::string>(), HasSubstr(parts[i]));
}

TEST(TemplateCommand, WithoutLinesThePromptComesAsItIs) {
  const ProgramResult result = RunProgram({"template"}, kHi);
  EXPECT_EQ(result.out, "<bos><|turn>user\nHi<turn|>\n<|turn>model\n");
  EXPECT_EQ(result.status, 0);
  ExpectError(RunProgram({"template"}, "{"), 1, "standard input: not valid JSON");
  ExpectError(RunProgram({"template", "--variant", "medium"}, kHi), 2, "--variant");
}

TEST(TemplateCommand, TheModelFolderChoosesTheVariant) {
  EXPECT_THAT(TemplateLines(kHi)[0].get<std::string>(), EndsWith("<|turn>model\n"));
  const std::string large = "<|turn>model\n<|channel>thought\n<channel|>";
  EXPECT_THAT(TemplateLines(kHi, {"-m", DataFolder("moe-mini")})[0].get<std::string>(), EndsWith(large));
  EXPECT_THAT(TemplateLines(kHi, {"--variant", "large"})[0].get<std::string>(), EndsWith(large));
  ExpectError(RunProgram({"template", "-m", "/none"}, kHi), 1, "/none");
}

TEST(TemplateCommand, AnUnknownTemplateIsToldOf) {
  const TestFolder folder;
  WriteText(folder / "config.json", ReadText(DataFolder("e2b-mini") + "/config.json"));
  WriteText(folder / "chat_template.jinja", "{{ messages }}");
  const ProgramResult result = RunProgram({"template", "-m", folder.path()}, kHi);
  EXPECT_THAT(result.out, EndsWith("<|turn>model\n"));
  EXPECT_THAT(result.err, HasSubstr("chat template: found an unknown one"));
}

}  // namespace
}  // namespace lapidary
