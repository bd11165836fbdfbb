#include "cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>

#include "checkpoint/tensor_index.h"
#include "run_program.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

TEST(Cli, HelpAndVersionAreDone) {
  const ProgramResult version = RunProgram({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, ::testing::MatchesRegex("lapidary [0-9.]+\n"));
  for (const char* command : {"generate", "logits", "tokenize", "detokenize", "bench", "inspect", "synth", "pull"}) {
    const ProgramResult help = RunProgram({command, "--help"});
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(help.out, HasSubstr(std::string("lapidary ") + command)) << "an example";
    EXPECT_EQ(help.err, "");
  }
}

TEST(Cli, WrongUsageIsStatusTwoAndOneLine) {
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"frobnicate"},
      {"generate", "--no-such-option", "x"},
      {"generate", "--temp", "warm", "x"},
      {"generate", "--temp"},
      {"generate", "-n", "ten", "x"},
      {"generate", "--device", "tpu", "x"},
      {"generate", "--kv-type", "f8", "x"},
      {"generate", "--speculate", "always", "x"},
      {"generate", "--threads", "-1", "x"},
      {"generate", "--ctx", "-1", "x"},
      {"generate", "--prefill-chunk", "0", "x"},
      {"generate", "--log-level", "loud", "x"},
      {"generate", "two", "prompts"},
      {"generate", "text", "--prompt-ids", "2"},
      {"generate", "--prompt-file", "f", "--prompt-ids", "2"},
      {"logits", "--prompt-ids", "2"},
      {"logits", "-o", "x"},
      {"tokenize", "--jsonl", "--text", "x"},
      {"detokenize", "--jsonl", "--ids", "2"},
      {"bench", "--reps", "0"},
      {"synth", "--shape", "e2b"},
      {"pull"},
  };
  for (const auto& line : lines) {
    SCOPED_TRACE(::testing::PrintToString(line));
    ExpectError(RunProgram(line), 2, "");
  }
}

TEST(Cli, ACommandThatIsMisspeltIsNamed) {
  ExpectError(RunProgram({"generat", "hi"}), 2, "found 'generat', wanted generate?");
  ExpectError(RunProgram({"--log-level", "info", "tokenise"}), 2, "wanted tokenize?");
  ExpectError(RunProgram({"frobnicate"}), 2, "found 'frobnicate', wanted one of generate, ");
}

TEST(Cli, AnEmptyModelFolderIsSaid) {
  for (const char* command : {"generate", "inspect", "bench", "tokenize"}) {
    ExpectError(RunProgram({command, "-m", ""}), 2, "--model: found '', wanted a folder");
  }
}

TEST(Cli, AFullDiskIsAnError) {
  const auto to_full = [](const std::string& arguments) {
    const std::string line = std::string(LAPIDARY_PROGRAM) + " " + arguments + " 2>&1 >/dev/full";
    std::FILE* program = popen(line.c_str(), "r");
    char text[200] = "";
    EXPECT_NE(std::fgets(text, sizeof(text), program), nullptr);
    EXPECT_EQ(std::string(text), "lapidary: standard output: cannot write: No space left on device\n") << arguments;
    EXPECT_EQ(WEXITSTATUS(pclose(program)), 1) << arguments;
  };
  const std::string mini = DataFolder("e2b-mini");
  for (const std::string command : {"--help", "--version", "generate --help", "tokenize --text hi",
                                    "detokenize --ids 2", "generate -n 3 hi", "generate -n 3 --json hi"}) {
    to_full(command);
  }
  to_full("inspect -m " + mini);
  to_full("bench -p 0 -n 1 -b 1 --reps 1 -m " + mini);
  ExpectError(RunProgram({"logits", "-m", mini, "--prompt-ids", "2", "-o", "/dev/full"}), 1, "/dev/full");
}

TEST(Cli, CudaIsAClearErrorHere) {
  ExpectError(RunProgram({"generate", "--device", "cuda", "x"}), 1, "no GPU backend");
}

// A copy of the small E2B-shaped checkpoint that a test then spoils.
class SpoiltCheckpoint : public ::testing::Test {
 protected:
  SpoiltCheckpoint() {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy(DataFolder("e2b-mini") + "/" + name, folder_ / name);
    }
  }

  // Every command that opens the folder says the same.
  void ExpectRefused(const std::string& part, bool inspect = true) {
    SCOPED_TRACE(part);
    ExpectError(RunProgram({"generate", "-m", folder_.path(), "--prompt-ids", "2", "-n", "1"}), 1, part);
    ExpectError(RunProgram({"logits", "-m", folder_.path(), "--prompt-ids", "2", "-o", folder_ / "out"}), 1, part);
    if (inspect) ExpectError(RunProgram({"inspect", "-m", folder_.path()}), 1, part);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out.part"));
  }

  void Replace(const std::string& from, const std::string& to) {
    std::string config = ReadText(DataFolder("e2b-mini") + "/config.json");
    const size_t place = config.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    WriteText(folder_ / "config.json", config.replace(place, from.size(), to));
  }

  TestFolder folder_;
};

TEST_F(SpoiltCheckpoint, TheCopyItselfWorks) {
  const ProgramResult result =
      RunProgram({"generate", "-m", folder_.path(), "--prompt-ids", "2", "-n", "4", "--temp", "0"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "770,138,781,303\n");
}

TEST_F(SpoiltCheckpoint, MissingParts) {
  ExpectError(RunProgram({"generate", "-m", folder_ / "none", "--prompt-ids", "2"}), 1, "none");
  ExpectError(RunProgram({"generate", "-m", folder_ / "config.json", "--prompt-ids", "2"}), 1, "config.json");
  ExpectError(RunProgram({"tokenize", "-m", folder_.path(), "--text", "x"}), 1, "tokenizer.json");
  ExpectError(RunProgram({"generate", "-m", folder_.path(), "text"}), 1, "tokenizer.json");
  std::filesystem::remove(folder_ / "model.safetensors");
  ExpectRefused("model.safetensors");
  std::filesystem::remove(folder_ / "config.json");
  ExpectRefused("config.json");
}

TEST_F(SpoiltCheckpoint, MissingShard) {
  std::filesystem::remove(folder_ / "model.safetensors");
  std::filesystem::copy(DataFolder("e4b-mini") + "/model.safetensors.index.json",
                        folder_ / "model.safetensors.index.json");
  std::filesystem::copy(DataFolder("e4b-mini") + "/model-00001-of-00002.safetensors",
                        folder_ / "model-00001-of-00002.safetensors");
  ExpectRefused("model-00002-of-00002.safetensors");
}

TEST_F(SpoiltCheckpoint, BrokenConfigs) {
  WriteText(folder_ / "config.json", "not JSON");
  ExpectRefused("config.json");
  WriteText(folder_ / "config.json", std::string(10000, '[') + std::string(10000, ']'));
  ExpectRefused("config.json");
  const struct {
    std::string from, to, part;
  } cases[] = {
      {"\"hidden_size\": 96", "\"hidden_size\": -96", "hidden_size"},
      {"\"hidden_size\": 96", "\"hidden_size\": 1e18", "hidden_size"},
      {"\"hidden_size\": 96", "\"hidden_size\": \"96\"", "hidden_size"},
      {"\"num_hidden_layers\": 10", "\"num_hidden_layers\": 99999999999", "num_hidden_layers"},
      {"\"vocab_size\": 1024", "\"vocab_size\": 1000", "embed_tokens"},
      {"sliding_attention", "striding_attention", "striding_attention"},
      {"proportional", "disproportional", "disproportional"},
      {"gelu_pytorch_tanh", "relu", "relu"},
  };
  for (const auto& c : cases) {
    Replace(c.from, c.to);
    ExpectRefused(c.part);
  }
}

TEST_F(SpoiltCheckpoint, BrokenWeightFiles) {
  const std::string good = ReadText(folder_ / "model.safetensors");
  const std::string path = folder_ / "model.safetensors";
  WriteText(path, good.substr(0, good.size() / 2));
  ExpectRefused("model.safetensors");
  WriteText(path, "\xff\xff\xff\xff\xff\xff\xff\x7f" + good.substr(8));
  ExpectRefused("model.safetensors");
  WriteText(path, "abc");
  ExpectRefused("model.safetensors");
  WriteText(path, "");
  ExpectRefused("model.safetensors");
  std::string renamed = good;  // one tensor is not there under its name
  const std::string name = "layers.3.self_attn.q_proj.weight";
  renamed.replace(renamed.find(name), name.size(), "layers.3.self_attn.Q_proj.weight");
  WriteText(path, renamed);
  ExpectRefused("layers.3.self_attn.q_proj");
  std::string retyped = good;
  const size_t type = retyped.find("\"BF16\"", retyped.find(name));
  retyped.replace(type, 6, "\"I16\" ");
  WriteText(path, retyped);
  ExpectRefused("I16");
}

TEST_F(SpoiltCheckpoint, ANanInTheWeightsNamesTheLayer) {
  std::string bytes = ReadText(folder_ / "model.safetensors");
  {
    const TensorIndex index = TensorIndex::Open(folder_.path());
    const StoredTensor* tensor = index.Find("model.language_model.layers.3.self_attn.o_proj.weight");
    ASSERT_NE(tensor, nullptr);
    const auto offset = static_cast<size_t>(tensor->bytes.data() - index.files()[0].bytes().data());
    bytes.replace(offset, 2, "\xc0\x7f");
  }
  WriteText(folder_ / "model.safetensors", bytes);
  ExpectError(RunProgram({"generate", "-m", folder_.path(), "--prompt-ids", "2,3", "-n", "5"}), 1, "layer 3");
  ExpectError(RunProgram({"bench", "-m", folder_.path(), "-p", "0", "-n", "2"}), 1, "layer 3");
}

TEST(Cli, OutputThatCannotBeWritten) {
  ExpectError(RunProgram({"logits", "-m", DataFolder("e2b-mini"), "--prompt-ids", "2", "-o", "/proc/none/out"}), 1,
              "/proc/none/out");
  ExpectError(RunProgram({"synth", "--shape", DataFolder("e2b-mini") + "/config.json", "-o", "/proc/none"}), 1,
              "/proc");
  const TestFolder folder;
  WriteText(folder / "shape.json", "{\"model_type\": \"llama\"}");
  ExpectError(RunProgram({"synth", "--shape", folder / "shape.json", "-o", folder / "out"}), 1, folder / "shape.json");
  ExpectError(RunProgram({"synth", "--shape", "e3b", "-o", "/tmp/none"}), 1, "e3b");
}

}  // namespace
}  // namespace lapidary
