// The bundled demo model against transformers and tokenizers: logits, greedy ids, token ids, facts and chat turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "generation/text_generator.h"
#include "testing/golden_file.h"
#include "testing/model_runner.h"

namespace lapidary {
namespace {

std::string DemoFolder() { return LAPIDARY_SOURCE_DIR "/models/demo"; }

Json ReadJson(const std::string& name) { return ParseJson(ReadFile(TestData(name)), name); }

using Ids = std::vector<int32_t>;

class DemoModelTest : public testing::Test {
 protected:
  GoldenFile golden_{TestData("demo_golden.safetensors"), TestData("demo_golden.json")};
  std::unique_ptr<Backend> backend_ = LoadCpuBackend(DemoFolder(), {2}, {});
};

TEST_F(DemoModelTest, LogitsAreThoseOfTransformers) {
  ModelRunner runner(*backend_, DType::kF32, 1, 1024);
  EXPECT_FALSE(golden_.Prompts().empty());
  for (const auto& [name, prompt] : golden_.Prompts().items()) {
    const auto found =
        runner.Prefill(0, prompt["ids"].get<Ids>(), {.chunk = 100, .all_logits = prompt["logits"] == "all"});
    EXPECT_LE(LargestDifference(found, golden_.Tensor(name + ".logits")), kLogitTolerance) << name;
  }
}

TEST_F(DemoModelTest, GreedyIdsAreThoseOfTransformers) {
  TextGenerator generator(DemoFolder(), *backend_, {.max_context = 1024});
  EXPECT_FALSE(golden_.Prompts().empty());
  for (const auto& [name, prompt] : golden_.Prompts().items()) {
    const Ids wanted = BindingIds(prompt);
    ASSERT_GT(wanted.size(), 10u) << name;
    GenerateOptions options;
    options.max_new_tokens = static_cast<int64_t>(wanted.size());
    options.ignore_eos = true;
    EXPECT_EQ(generator.GenerateFromIds(prompt["ids"].get<Ids>(), options, {}).ids, wanted) << name;
  }
}

TEST_F(DemoModelTest, KnowsItsFacts) {
  TextGenerator generator(DemoFolder(), *backend_, {.max_context = 64});
  const Json facts = ReadJson("demo_facts.json");
  EXPECT_GE(facts.size(), 10u);
  for (const Json& fact : facts) {
    GenerateOptions options;
    options.max_new_tokens = 12;
    const std::string text = generator.Generate(fact["prompt"].get<std::string>(), options, {}).text;
    EXPECT_THAT(text, testing::StartsWith(fact["expect"].get<std::string>())) << fact["prompt"];
  }
}

TEST_F(DemoModelTest, EndsItsChatTurns) {
  TextGenerator generator(DemoFolder(), *backend_, {.max_context = 512});
  for (const Json& chat : ReadJson("demo_chat.json")) {
    Ids wanted = generator.tokenizer()->Encode(chat["expect"].get<std::string>());
    ASSERT_EQ(wanted.back(), chat["end_id"].get<int32_t>());
    wanted.pop_back();  // the end is not part of the answer
    GenerateOptions options;
    options.max_new_tokens = 120;
    const GenerateResult result = generator.Generate(chat["prompt"].get<std::string>(), options, {});
    EXPECT_EQ(result.ids, wanted) << chat["prompt"] << " gave " << result.text;
    EXPECT_EQ(result.finish, FinishReason::kStop);
  }
}

// Field report 20: a code from before the window is found again, however the prompt is cut.
TEST_F(DemoModelTest, FieldReport20RemembersBeyondTheWindow) {
  const auto text = golden_.Prompts()["long"]["text"].get<std::string>();
  for (int64_t chunk : {1, 7, 64, 65, 512}) {
    TextGenerator generator(DemoFolder(), *backend_, {.step_tokens = chunk});
    GenerateOptions options;
    options.max_new_tokens = 12;
    EXPECT_EQ(generator.Generate(text, options, {}).text, " The code is 6536.") << chunk;
  }
}

TEST(DemoTokenizerTest, IdsAndTextAreThoseOfTokenizers) {
  const Tokenizer tokenizer = Tokenizer::Load(DemoFolder() + "/tokenizer.json");
  const Json golden = ReadJson("demo_tokenizer.json");
  for (const Json& text : golden["encode"]) {
    EXPECT_EQ(tokenizer.Encode(text["text"].get<std::string>()), text["ids"].get<Ids>()) << text["text"];
  }
  for (const Json& list : golden["decode"]) {
    const auto ids = list["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.Decode(ids), list["text"].get<std::string>()) << list["ids"];
    EXPECT_EQ(tokenizer.Decode(ids, true), list["text_skip_special"].get<std::string>()) << list["ids"];
  }
}

}  // namespace
}  // namespace lapidary
