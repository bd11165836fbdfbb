#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"
#include "chat/chat_template.h"
#include "chat/ordered_json.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Google's templates lie outside the repository: $LAPIDARY_SHARED, or beside the project.
std::string ReferenceTemplate(const std::string& name) {
  const char* shared = std::getenv("LAPIDARY_SHARED");
  const std::string folder = shared != nullptr ? shared : LAPIDARY_SOURCE_DIR "/../shared";
  const std::string path = folder + "/reference/chat_template/" + name + ".jinja";
  return std::filesystem::exists(path) ? ReadFile(path) : "";
}

TEST(RecogniseChatTemplate, KnowsGooglesTemplates) {
  const std::string small = ReferenceTemplate("small"), large = ReferenceTemplate("large");
  if (small.empty() || large.empty()) GTEST_SKIP() << "no reference templates";
  for (const bool has_per_layer_inputs : {false, true}) {
    const ChatTemplateChoice as_small = RecogniseChatTemplate(small, has_per_layer_inputs);
    EXPECT_EQ(as_small.variant, ChatVariant::kSmall);
    EXPECT_THAT(as_small.warning, IsEmpty());
    const ChatTemplateChoice as_large = RecogniseChatTemplate(large + "\r\n", has_per_layer_inputs);
    EXPECT_EQ(as_large.variant, ChatVariant::kLarge);
    EXPECT_THAT(as_large.warning, IsEmpty());
    const ChatTemplateChoice edited = RecogniseChatTemplate(large + "{{ extra }}", has_per_layer_inputs);
    EXPECT_EQ(edited.variant, ChatVariant::kLarge);
    EXPECT_THAT(edited.warning, HasSubstr("another version"));
  }
}

constexpr const char* kOtherVersion = "{{ '<|turn>' }}<turn|><|think|>{{ '<|tool_call>call:' }}";

TEST(RecogniseChatTemplate, WarnsOfOthers) {
  const ChatTemplateChoice other = RecogniseChatTemplate(kOtherVersion, false);
  EXPECT_EQ(other.variant, ChatVariant::kSmall);
  EXPECT_THAT(other.warning, HasSubstr("another version of Gemma 4's"));
  const ChatTemplateChoice large =
      RecogniseChatTemplate(std::string(kOtherVersion) + R"({{- '<|channel>thought\n<channel|>' -}})", true);
  EXPECT_EQ(large.variant, ChatVariant::kLarge);
  for (const bool has_per_layer_inputs : {false, true}) {
    const ChatTemplateChoice unknown = RecogniseChatTemplate("<start_of_turn>", has_per_layer_inputs);
    EXPECT_EQ(unknown.variant, has_per_layer_inputs ? ChatVariant::kSmall : ChatVariant::kLarge);
    EXPECT_THAT(unknown.warning, HasSubstr("unknown"));
    EXPECT_EQ(unknown.warning.find('\n'), std::string::npos);
  }
}

class ChooseChatTemplateTest : public ::testing::Test {
 protected:
  ChooseChatTemplateTest() {
    std::string name = ::testing::TempDir() + "lapidary_template_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ChooseChatTemplateTest() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) { std::ofstream(folder_ + "/" + name) << text; }

  std::string folder_;
};

TEST_F(ChooseChatTemplateTest, WithoutATemplateTheModelsKindDecides) {
  for (const bool has_config : {false, true}) {
    if (has_config) Write("tokenizer_config.json", "{\"bos_token\": \"<bos>\"}");
    EXPECT_EQ(ChooseChatTemplate(folder_, true).variant, ChatVariant::kSmall);
    EXPECT_EQ(ChooseChatTemplate(folder_, false).variant, ChatVariant::kLarge);
    EXPECT_THAT(ChooseChatTemplate(folder_, false).warning, IsEmpty());
  }
}

TEST_F(ChooseChatTemplateTest, LooksIntoTheFileThenTheTokenizersConfig) {
  Write("tokenizer_config.json", OrderedJson({{"chat_template", kOtherVersion}}).dump());
  EXPECT_THAT(ChooseChatTemplate(folder_, false).warning, HasSubstr("another version"));
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tools", "template": "x"}, {"name": "default",
                                    "template": "y"}]})");
  EXPECT_THAT(ChooseChatTemplate(folder_, false).warning, HasSubstr("unknown"));
  Write("chat_template.jinja", kOtherVersion);
  EXPECT_THAT(ChooseChatTemplate(folder_, false).warning, HasSubstr("another version"));
}

}  // namespace
}  // namespace lapidary
