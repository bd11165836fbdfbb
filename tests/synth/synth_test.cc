#include "synth/synth.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/tensor_index.h"
#include "model/model_plan.h"
#include "model/model_weights.h"

namespace lapidary {
namespace {

namespace fs = std::filesystem;

std::string Mini(const std::string& name) { return std::string(LAPIDARY_SOURCE_DIR "/tests/data/") + name; }

// A folder of its own for each test, removed afterwards.
class SynthTest : public testing::Test {
 protected:
  SynthTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + test->name();
    for (char& c : name) c = c == '/' ? '_' : c;
    folder_ = fs::temp_directory_path() / ("lapidary_synth_" + std::to_string(::getpid()) + name);
    fs::remove_all(folder_);
  }
  ~SynthTest() override {
    std::error_code ignored;
    fs::permissions(folder_, fs::perms::owner_all, ignored);
    fs::remove_all(folder_, ignored);
  }

  std::string folder() const { return folder_.string(); }
  std::string File(const char* name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

ErrorKind KindOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "found no error";
  return ErrorKind::kCancelled;
}

class SynthMiniTest : public SynthTest, public testing::WithParamInterface<const char*> {};

// The golden checkpoints were made by the same rule in Python.
TEST_P(SynthMiniTest, EveryTensorHasTheBitsOfTheReference) {
  WriteSynthCheckpoint(ReadFile(Mini(GetParam()) + "/config.json"), folder(), 2, nullptr);
  const TensorIndex made = TensorIndex::Open(folder()), golden = TensorIndex::Open(Mini(GetParam()));
  ASSERT_GT(made.tensors().size(), 50u);
  size_t text_tensors = 0;
  for (const StoredTensor& wanted : golden.tensors()) {
    if (wanted.name.find("tower") != std::string::npos || wanted.name.find("embed_vision") != std::string::npos)
      continue;
    ++text_tensors;
    const StoredTensor* found = made.Find(wanted.name);
    ASSERT_NE(found, nullptr) << wanted.name;
    EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
    EXPECT_EQ(found->stored_type, wanted.stored_type) << wanted.name;
    ASSERT_EQ(found->bytes.size(), wanted.bytes.size()) << wanted.name;
    EXPECT_EQ(std::memcmp(found->bytes.data(), wanted.bytes.data(), wanted.bytes.size()), 0) << wanted.name;
  }
  EXPECT_EQ(made.tensors().size(), text_tensors);
  const ModelPlan plan = MakeModelPlan(LoadConfig(folder()));
  EXPECT_EQ(BindWeights(made, plan).layers.size(), plan.layers.size());
}

INSTANTIATE_TEST_SUITE_P(All, SynthMiniTest, testing::Values("e2b-mini", "e4b-mini", "dense-mini", "moe-mini"));

// Text-only and in one file: the whole file is as safetensors' own writer makes it.
TEST_F(SynthTest, WritesTheFileOfTheReferenceByteForByte) {
  for (const char* name : {"dense-mini", "moe-mini"}) {
    fs::remove_all(folder_);
    WriteSynthCheckpoint(ReadFile(Mini(name) + "/config.json"), folder(), 1, nullptr);
    EXPECT_TRUE(ReadFile(File("model.safetensors")) == ReadFile(Mini(name) + "/model.safetensors")) << name;
    EXPECT_EQ(ReadFile(File("config.json")), ReadFile(Mini(name) + "/config.json"));
  }
}

// A table of 24 MB, written in pieces that end inside it and inside its neighbours.
TEST_F(SynthTest, PiecesOfALargeFileJoin) {
  Json config = Json::parse(ReadFile(Mini("dense-mini") + "/config.json"));
  Json& text = config.contains("text_config") ? config["text_config"] : config;
  text["vocab_size"] = 196608;
  WriteSynthCheckpoint(config.dump(), folder(), 2, nullptr);
  const TensorIndex made = TensorIndex::Open(folder()), golden = TensorIndex::Open(Mini("dense-mini"));
  size_t same = 0;
  for (const StoredTensor& wanted : golden.tensors()) {
    const StoredTensor* found = made.Find(wanted.name);
    ASSERT_NE(found, nullptr) << wanted.name;
    ASSERT_GE(found->bytes.size(), wanted.bytes.size()) << wanted.name;
    EXPECT_EQ(std::memcmp(found->bytes.data(), wanted.bytes.data(), wanted.bytes.size()), 0) << wanted.name;
    same += found->bytes.size() == wanted.bytes.size();
  }
  EXPECT_EQ(same + 1, golden.tensors().size());
  const StoredTensor* table = made.Find("model.embed_tokens.weight");
  ASSERT_NE(table, nullptr);
  std::vector<BF16> wanted(table->bytes.size() / sizeof(BF16));
  ASSERT_GT(table->bytes.size(), size_t{20} << 20);
  const double hidden = text["hidden_size"].get<double>();
  SynthFill("model.language_model.embed_tokens.weight", 0.0f, static_cast<float>(std::sqrt(3.0) / std::sqrt(hidden)), 0,
            wanted);
  EXPECT_EQ(std::memcmp(table->bytes.data(), wanted.data(), table->bytes.size()), 0);
}

TEST_F(SynthTest, ThreadCountsGiveTheSameFile) {
  const std::string config = ReadFile(Mini("e2b-mini") + "/config.json");
  WriteSynthCheckpoint(config, folder() + "/one", 1, nullptr);
  WriteSynthCheckpoint(config, folder() + "/three", 3, nullptr);
  EXPECT_TRUE(ReadFile(folder() + "/one/model.safetensors") == ReadFile(folder() + "/three/model.safetensors"));
}

TEST_F(SynthTest, LeavesTheSameCheckpointAloneAndRefusesAnother) {
  const std::string config = ReadFile(Mini("dense-mini") + "/config.json");
  WriteSynthCheckpoint(config, folder(), 1, nullptr);
  const auto written = fs::last_write_time(File("model.safetensors"));
  WriteSynthCheckpoint(config, folder(), 1, nullptr);
  EXPECT_EQ(fs::last_write_time(File("model.safetensors")), written);
  const std::string other = ReadFile(Mini("moe-mini") + "/config.json");
  EXPECT_EQ(KindOf([&] { WriteSynthCheckpoint(other, folder(), 1, nullptr); }), ErrorKind::kInvalidArgument);
  fs::remove(File("config.json"));
  EXPECT_EQ(KindOf([&] { WriteSynthCheckpoint(other, folder(), 1, nullptr); }), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(ReadFile(File("model.safetensors")) == ReadFile(Mini("dense-mini") + "/model.safetensors"));
}

TEST_F(SynthTest, ReportsProgressUpToTheWhole) {
  uint64_t last = 0, whole = 0;
  WriteSynthCheckpoint(ReadFile(Mini("e4b-mini") + "/config.json"), folder(), 2,
                       [&](std::string_view, uint64_t done, uint64_t total) {
                         EXPECT_GE(done, last);
                         last = done;
                         whole = total;
                       });
  EXPECT_EQ(whole, 2258344u);  // total_size of the reference's index
  EXPECT_EQ(last, whole);
}

TEST_F(SynthTest, CancelledWorkLeavesNoModelBehind) {
  const auto cancel = [](std::string_view, uint64_t, uint64_t) { Throw(ErrorKind::kCancelled, "stop"); };
  const std::string config = ReadFile(Mini("dense-mini") + "/config.json");
  EXPECT_EQ(KindOf([&] { WriteSynthCheckpoint(config, folder(), 2, cancel); }), ErrorKind::kCancelled);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SynthTest, MoreThanTheDiskHoldsIsRefusedAtOnce) {
  // 2^24 x 2^17 elements in the table alone: 4 TiB.
  const std::string config = R"({"model_type": "gemma4_text", "vocab_size": 16777216, "hidden_size": 131072,
                                 "num_hidden_layers": 1, "hidden_size_per_layer_input": 0})";
  EXPECT_EQ(KindOf([&] { WriteSynthCheckpoint(config, folder(), 1, nullptr); }), ErrorKind::kOutOfMemory);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SynthTest, AFolderThatCannotBeMadeIsAnError) {
  fs::create_directories(folder_);
  std::ofstream(File("file")) << "x";
  const std::string config = ReadFile(Mini("dense-mini") + "/config.json");
  EXPECT_EQ(KindOf([&] { WriteSynthCheckpoint(config, File("file"), 1, nullptr); }), ErrorKind::kInvalidArgument);
  EXPECT_EQ(KindOf([&] { WriteSynthCheckpoint(config, File("file") + "/below", 1, nullptr); }),
            ErrorKind::kInvalidArgument);
}

TEST(SynthShapeTest, E2bIsTheRealSize) {
  const Config config = ParseConfig(SynthShape("e2b"), "e2b");
  const ModelPlan plan = MakeModelPlan(config);
  int64_t elements = 0;
  for (const WeightSpec& spec : RequiredWeights(plan)) {
    int64_t product = 1;
    for (const int64_t dimension : spec.shape) product *= dimension;
    elements += product;
  }
  // 2.279 G weights read for each decoded token and a per-layer table of 262144 x 35 x 256.
  EXPECT_NEAR(static_cast<double>(elements), 2.279e9 + 262144.0 * 35 * 256, 1e6);
  EXPECT_EQ(plan.last_kv_layer, 14);
  EXPECT_EQ(plan.layers[34].kv_source, 14);
  EXPECT_EQ(plan.layers[33].kv_source, 13);
  EXPECT_EQ(KindOf([] { SynthShape("e3b"); }), ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace lapidary
