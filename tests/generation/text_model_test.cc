#include "generation/text_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../engine/fake_backend.h"
#include "base/error.h"
#include "small_tokenizer.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using Small = SmallTokenizer;

TEST(TextModel, EncodesAPromptBehindOneBos) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", Small::JsonText());
  const FakeBackend backend({.vocab = 1000});
  const TextModel model(folder.path(), backend.plan());
  for (const char* text : {"alpha beta", "<bos>alpha beta"}) {
    EXPECT_THAT(model.EncodePrompt(text, 300), ElementsAre(Small::kBos, Small::Word("alpha"), Small::Word(" beta")));
  }
  EXPECT_THROW(model.EncodePrompt("", 300), Error);
  EXPECT_THROW(model.EncodePrompt(std::string(100'000, 'a'), 300), Error);
  EXPECT_EQ(model.vocab(), 1000);
}

TEST(TextModel, EndsAtTheIdsOfBothFilesUnlessTold) {
  const TemporaryFolder folder;
  folder.Write("generation_config.json", R"({"eos_token_id": [1, 106, 50]})");
  FakeBackend backend({.vocab = 1000});
  const_cast<ModelPlan&>(backend.plan()).config.eos_token_ids = {1, 7};
  const TextModel model(folder.path(), backend.plan());
  EXPECT_THAT(model.MakeRequest({5}, {}).eos_ids, ElementsAre(1, 7, 50, 106));
  EXPECT_THAT(model.MakeRequest({5}, {.ignore_eos = true}).eos_ids, ElementsAre());
  EXPECT_EQ(model.MakeRequest({5}, {.max_new_tokens = 3}).max_new_tokens, 3);
}

TEST(TextModel, WithoutATokenizerOnlyIdsWork) {
  const TemporaryFolder folder;
  const FakeBackend backend({.vocab = 1000});
  const TextModel model(folder.path(), backend.plan());
  EXPECT_EQ(model.tokenizer(), nullptr);
  EXPECT_THROW(model.EncodePrompt("alpha", 300), Error);
  EXPECT_THROW(model.MakeRequest({5}, {.stop = {"x"}}), Error);
  EXPECT_THAT(model.MakeRequest({5}, {}).prompt, ElementsAre(5));
}

}  // namespace
}  // namespace lapidary
