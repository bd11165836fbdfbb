// lapidary generate, from command line to text.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <thread>

#include "base/json.h"
#include "run_program.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramResult Generate(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), "generate");
  return RunProgram(arguments, input);
}

Json GenerateJson(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.push_back("--json");
  const ProgramResult result = Generate(std::move(arguments), input);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return ParseJson(result.out, "output");
}

TEST(GenerateCommand, TheDemoModelKnowsItsCapitals) {
  const ProgramResult result = Generate({"-n", "8", "The capital of France is"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith(" Paris"));
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_EQ(result.err, "");
}

TEST(GenerateCommand, TextComesFromArgumentFileOrInput) {
  const TestFolder folder;
  const std::string text = "The capital of France is";
  WriteText(folder / "prompt", text);
  const Json expected = GenerateJson({"-n", "6", text});
  EXPECT_EQ(expected["prompt_ids"][0], 2);
  for (const Json& other :
       {GenerateJson({"-n", "6", "--prompt-file", folder / "prompt"}), GenerateJson({"-n", "6"}, text)}) {
    EXPECT_EQ(other["prompt_ids"], expected["prompt_ids"]);
    EXPECT_EQ(other["ids"], expected["ids"]);
    EXPECT_EQ(other["text"], expected["text"]);
  }
  EXPECT_EQ(GenerateJson({"-n", "6", "--prompt-ids", expected["prompt_ids"].dump()})["ids"], expected["ids"]);
}

TEST(GenerateCommand, JsonHasEveryFieldOfTheContract) {
  const Json json = GenerateJson({"-n", "5", "--ignore-eos", "The"});
  EXPECT_EQ(json["ids"].size(), 5u);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_TRUE(json["text"].is_string());
  for (const char* key : {"load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"}) {
    EXPECT_GT(json["timings"][key].get<double>(), 0) << key;
  }
  EXPECT_EQ(json["speculation"]["drafted"], 0);
  EXPECT_EQ(json["speculation"]["steps"], 4);
}

TEST(GenerateCommand, SpeculationChunksThreadsAndBatchesChangeNothing) {
  const std::vector<std::string> base = {"-n", "60", "--ignore-eos",
                                         "The capital of France is Paris. The capital of Japan is"};
  for (const std::vector<std::string>& sampling :
       {std::vector<std::string>{"--temp", "0"},
        {"--temp", "0.8", "--seed", "3", "--top-k", "20", "--top-p", "0.9", "--min-p", "0.01", "--repetition-penalty",
         "1.1", "--presence-penalty", "0.1", "--frequency-penalty", "0.1"}}) {
    std::vector<std::string> line = base;
    line.insert(line.end(), sampling.begin(), sampling.end());
    const Json expected = GenerateJson(line);
    for (const std::vector<std::string>& extra : {std::vector<std::string>{"--speculate", "ngram"},
                                                  {"--prefill-chunk", "3"},
                                                  {"--threads", "1"},
                                                  {"--threads", "3", "--prefill-chunk", "7"}}) {
      std::vector<std::string> other = line;
      other.insert(other.end(), extra.begin(), extra.end());
      EXPECT_EQ(GenerateJson(other)["ids"], expected["ids"]) << ::testing::PrintToString(extra);
    }
  }
}

TEST(GenerateCommand, SeedsDecide) {
  const auto text = [](const char* seed) {
    return GenerateJson({"-n", "30", "--temp", "3", "--ignore-eos", "--seed", seed, "Once"})["ids"];
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

TEST(GenerateCommand, StopTextsEndTheAnswer) {
  const Json whole = GenerateJson({"-n", "20", "The capital of France is"});
  const auto text = whole["text"].get<std::string>();
  ASSERT_GT(text.size(), 8u);
  const Json cut =
      GenerateJson({"-n", "20", "--stop", "never", "--stop", text.substr(3, 4), "The capital of France is"});
  EXPECT_EQ(cut["text"], text.substr(0, 3));
  EXPECT_EQ(cut["finish_reason"], "stop");
  ExpectError(Generate({"--stop", "", "x"}), 2, "stop");
}

TEST(GenerateCommand, LogitBiasDecides) {
  const std::string mini = DataFolder("e2b-mini");
  const ProgramResult result = Generate({"-m", mini, "--prompt-ids", "2", "-n", "3", "--temp", "0", "--logit-bias",
                                         "77=1000", "--logit-bias", "770=-50"});
  EXPECT_EQ(result.out, "77,77,77\n");
}

TEST(GenerateCommand, RefusesValuesThatCannotBe) {
  const std::string mini = DataFolder("e2b-mini");
  int status = 1;  // what depends on the model
  const auto refused = [&](std::vector<std::string> arguments, const std::string& part) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    arguments.insert(arguments.end(), {"-m", mini});
    ExpectError(Generate(arguments), status, part);
  };
  refused({"--prompt-ids", ""}, "no tokens");
  refused({"--prompt-ids", "2,1024"}, "1024");
  refused({"--prompt-ids", "2,3,4,5", "--ctx", "4"}, "found 4 tokens, wanted fewer than the context of 4");
  refused({"--prompt-ids", "2", "--ctx", "5000"}, "4096");
  refused({"--prompt-ids", "2", "--logit-bias", "5000=1"}, "5000");
  refused({"--prompt-ids", "2", "--stop", "x"}, "tokenizer.json");
  status = 2;  // what no model could take
  refused({"--prompt-ids", "2", "-n", "0"}, "found '0', wanted not 0");
  refused({"--prompt-ids", "2", "-n", "-2"}, "found '-2'");
  refused({"--prompt-ids", "2,x"}, "x");
  refused({"--prompt-ids", "2,-1"}, "-1");
  refused({"--prompt-ids", "2", "--temp", "-1"}, "--temp");
  refused({"--prompt-ids", "2", "--temp", "nan"}, "--temp");
  refused({"--prompt-ids", "2", "--top-p", "0"}, "--top-p");
  refused({"--prompt-ids", "2", "--top-k", "-1"}, "--top-k");
  refused({"--prompt-ids", "2", "--min-p", "2"}, "--min-p");
  refused({"--prompt-ids", "2", "--repetition-penalty", "0"}, "--repetition-penalty");
  refused({"--prompt-ids", "2", "--presence-penalty", "inf"}, "--presence-penalty");
  refused({"--prompt-ids", "2", "--logit-bias", "5"}, "--logit-bias");
  ExpectError(Generate({"--prompt-file", "/none/prompt"}), 1, "/none/prompt");
}

TEST(GenerateCommand, TakesAPromptFromAPipe) {
  const ProgramResult piped =
      Generate({"--prompt-file", "/dev/stdin", "-n", "8", "--temp", "0"}, "The capital of France is");
  const ProgramResult given = Generate({"-n", "8", "--temp", "0", "The capital of France is"});
  EXPECT_EQ(piped.status, 0) << piped.err;
  EXPECT_EQ(piped.out, given.out);
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { WriteText(folder / "pipe", "The capital of France is"); });
  EXPECT_EQ(Generate({"--prompt-file", folder / "pipe", "-n", "8", "--temp", "0"}).out, given.out);
  writer.join();
  ExpectError(Generate({"--prompt-file", folder.path()}), 1, "cannot read");
}

TEST(GenerateCommand, RefusesNumbersThatDoNotFit) {
  ExpectError(Generate({"--seed", "-1", "hi"}), 2, "found '-1', wanted a whole number of 0 or more");
  ExpectError(Generate({"--seed", "99999999999999999999", "hi"}), 2, "--seed");
  ExpectError(Generate({"-n", "99999999999999999999", "hi"}), 2, "wanted a whole number of -1 or more");
  ExpectError(Generate({"--threads", "4096", "hi"}), 2, "0 to 1024");
}

TEST(GenerateCommand, RefusesAnEmptyPrompt) {
  ExpectError(Generate({""}), 1, "found an empty text");
  ExpectError(Generate({}, ""), 1, "found an empty text");
}

TEST(GenerateCommand, AFullContextEndsWithLength) {
  const Json json =
      GenerateJson({"-m", DataFolder("e2b-mini"), "--prompt-ids", "2,3", "-n", "-1", "--ctx", "40", "--ignore-eos"});
  EXPECT_EQ(json["ids"].size(), 38u);
  EXPECT_EQ(json["finish_reason"], "length");
}

TEST(GenerateCommand, Bf16CacheAndLogsWork) {
  const ProgramResult result =
      Generate({"--kv-type", "bf16", "--log-level", "info", "-n", "4", "The capital of France is"});
  EXPECT_THAT(result.out, StartsWith(" Paris"));
  EXPECT_THAT(result.err, HasSubstr("prompt"));
}

// Starts a generation that would take long, with its standard output on `out`.
pid_t StartLong(int out) {
  const pid_t child = fork();
  if (child != 0) return child;
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  for (int file = 3; file < 64; ++file) close(file);
  execl(LAPIDARY_PROGRAM, LAPIDARY_PROGRAM, "generate", "-n", "-1", "--ignore-eos", "--temp", "3", "Once", nullptr);
  _exit(127);
}

int StatusOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(GenerateCommand, AReaderThatGoesAwayEndsItQuietly) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = StartLong(pipe_ends[1]);
  close(pipe_ends[1]);
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  close(pipe_ends[0]);
  EXPECT_EQ(StatusOf(child), 0);
}

TEST(GenerateCommand, InterruptEndsTheAnswer) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = StartLong(pipe_ends[1]);
  close(pipe_ends[1]);
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  kill(child, SIGINT);
  std::string text;
  while (read(pipe_ends[0], &byte, 1) == 1) text += byte;
  close(pipe_ends[0]);
  EXPECT_EQ(StatusOf(child), 0);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
}

TEST(GenerateCommand, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "no /dev/full";
  const pid_t child = StartLong(full);
  close(full);
  EXPECT_EQ(StatusOf(child), 1);
}

}  // namespace
}  // namespace lapidary
