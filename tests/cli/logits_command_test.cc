// lapidary logits: the file it writes, against the reference's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "checkpoint/tensor_index.h"
#include "run_program.h"

namespace lapidary {
namespace {

// Maps a safetensors file by giving it the name that a checkpoint has.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path) {
    std::filesystem::copy(path, folder_ / "model.safetensors");
    index_ = TensorIndex::Open(folder_.path());
  }
  std::vector<int64_t> Shape(const std::string& name) const {
    const StoredTensor* tensor = index_.Find(name);
    return tensor ? tensor->shape : std::vector<int64_t>{};
  }
  std::vector<float> Values(const std::string& name) const {
    const StoredTensor* tensor = index_.Find(name);
    if (tensor == nullptr || tensor->stored_type != "F32") return {};
    std::vector<float> values(tensor->bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }
  size_t size() const { return index_.tensors().size(); }

 private:
  TestFolder folder_;
  TensorIndex index_;
};

std::string Ids(int count) {
  std::string ids = "2";
  for (int i = 1; i < count; ++i) ids.append(",").append(std::to_string(10 + 37 * i % 900));
  return ids;
}

void Logits(const std::string& output, std::vector<std::string> extra) {
  std::vector<std::string> line = {"logits", "-m", DataFolder("e2b-mini"), "--prompt-ids", Ids(40), "-o", output};
  line.insert(line.end(), extra.begin(), extra.end());
  const ProgramResult result = RunProgram(line);
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(LogitsCommand, WritesTheShapesOfTheContract) {
  const TestFolder folder;
  Logits(folder / "last", {});
  Logits(folder / "all", {"--all", "--taps"});
  const TensorFile last(folder / "last"), all(folder / "all");
  EXPECT_EQ(last.size(), 1u);
  EXPECT_EQ(last.Shape("logits"), (std::vector<int64_t>{1, 1024}));
  EXPECT_EQ(all.size(), 1u + 11 + 1);
  EXPECT_EQ(all.Shape("logits"), (std::vector<int64_t>{40, 1024}));
  for (int i = 0; i <= 10; ++i) {
    EXPECT_EQ(all.Shape("hidden." + std::to_string(i)), (std::vector<int64_t>{40, 96})) << i;
  }
  EXPECT_EQ(all.Shape("per_layer_inputs"), (std::vector<int64_t>{40, 10, 16}));
  std::vector<float> values = all.Values("logits");
  values.erase(values.begin(), values.end() - 1024);
  EXPECT_EQ(values, last.Values("logits"));
  EXPECT_FALSE(std::filesystem::exists(folder / "all.part"));
}

TEST(LogitsCommand, ChunksChangeNoBit) {
  const TestFolder folder;
  Logits(folder / "whole", {"--all", "--taps", "--prefill-chunk", "64"});
  Logits(folder / "taps", {"--taps", "--prefill-chunk", "16"});
  const TensorFile whole(folder / "whole"), taps(folder / "taps");
  for (const char* chunk : {"1", "7"}) {
    Logits(folder / chunk, {"--all", "--taps", "--prefill-chunk", chunk});
    const TensorFile cut(folder / chunk);
    EXPECT_EQ(cut.Values("logits"), whole.Values("logits"));
    EXPECT_EQ(cut.Values("hidden.4"), whole.Values("hidden.4"));
    EXPECT_EQ(cut.Values("hidden.10"), whole.Values("hidden.10"));
    EXPECT_EQ(cut.Values("per_layer_inputs"), whole.Values("per_layer_inputs"));
  }
  EXPECT_EQ(taps.Values("hidden.10"), whole.Values("hidden.10"));
  EXPECT_EQ(taps.Shape("logits"), (std::vector<int64_t>{1, 1024}));
}

// The reference's own prompts: logits within 2e-3, as for the backend.
TEST(LogitsCommand, AgreesWithTheReference) {
  const Json golden = ParseJson(ReadText(DataFolder("e2b-mini") + "/golden.json"), "golden.json");
  const TensorFile reference(DataFolder("e2b-mini") + "/golden.safetensors");
  int compared = 0;
  for (const auto& [name, prompt] : golden["prompts"].items()) {
    const std::vector<float> expected = reference.Values(name + ".logits");
    if (expected.size() != prompt["ids"].size() * 1024) continue;
    const TestFolder folder;
    const ProgramResult result = RunProgram(
        {"logits", "-m", DataFolder("e2b-mini"), "--prompt-ids", prompt["ids"].dump(), "--all", "-o", folder / "out"});
    ASSERT_EQ(result.status, 0) << result.err;
    const std::vector<float> found = TensorFile(folder / "out").Values("logits");
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-3) << name << " " << i;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(LogitsCommand, RefusesPromptsThatCannotRun) {
  const auto refused = [](const std::string& ids, const std::vector<std::string>& extra, const std::string& part) {
    std::vector<std::string> line = {"logits", "-m", DataFolder("e2b-mini"), "--prompt-ids",
                                     ids,      "-o", "/tmp/lapidary_none"};
    line.insert(line.end(), extra.begin(), extra.end());
    ExpectError(RunProgram(line), 1, part);
  };
  refused("", {}, "no tokens");
  refused("2,1024", {}, "found token id 1024, wanted one in [0, 1024)");
  refused("2,3,4", {"--ctx", "2"}, "found 3 tokens, wanted at most the context of 2");
}

}  // namespace
}  // namespace lapidary
