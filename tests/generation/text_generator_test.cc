#include "generation/text_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../engine/fake_backend.h"
#include "base/error.h"
#include "small_tokenizer.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Small = SmallTokenizer;

int32_t C(char c) { return Small::Character(c); }

FakeBackend::Options Model() { return {.vocab = 1000, .max_position_embeddings = 300}; }

// A model that says `answer` after any prompt of `prompt` tokens, then <eos> for ever.
class TextGeneratorTest : public ::testing::Test {
 protected:
  TextGeneratorTest() : backend_(Model()) { folder_.Write("tokenizer.json", Small::JsonText()); }

  void Say(std::vector<int32_t> answer, size_t prompt = 1) {
    backend_.script = [answer = std::move(answer), prompt](std::span<const int32_t> text) {
      const size_t next = text.size() - prompt;
      return next < answer.size() ? answer[next] : Small::kEos;
    };
  }

  GenerateResult FromIds(const GenerateOptions& options, std::vector<int32_t> prompt = {Small::kBos}) {
    pieces_.clear();
    TextGenerator generator(folder_.path(), backend_, {});
    GenerateResult result = generator.GenerateFromIds(std::move(prompt), options, [this](std::string_view piece) {
      pieces_.emplace_back(piece);
      return true;
    });
    std::string joined;
    for (const std::string& piece : pieces_) joined += piece;
    EXPECT_EQ(joined, result.text);
    return result;
  }

  TemporaryFolder folder_;
  FakeBackend backend_;
  std::vector<std::string> pieces_;
};

TEST_F(TextGeneratorTest, StreamsTheTextUpToTheEos) {
  folder_.Write("generation_config.json", R"({"eos_token_id": 1})");
  Say({Small::Word("alpha"), Small::Word(" beta"), C('!')});
  const GenerateResult result = FromIds({});
  EXPECT_EQ(result.text, "alpha beta!");
  EXPECT_THAT(result.ids, ElementsAre(Small::Word("alpha"), Small::Word(" beta"), C('!')));
  EXPECT_EQ(result.finish, FinishReason::kStop);
  EXPECT_THAT(pieces_, ElementsAre("alpha", " beta", "!"));
  EXPECT_EQ(result.timings.prefill_tokens, 1);
  EXPECT_EQ(result.timings.decode_tokens, 2);
}

TEST_F(TextGeneratorTest, APromptGetsOneBos) {
  TextGenerator generator(folder_.path(), backend_, {});
  for (const char* prompt : {"alpha beta", "<bos>alpha beta"}) {
    const GenerateResult result = generator.Generate(prompt, {.max_new_tokens = 1}, {});
    EXPECT_THAT(result.prompt_ids, ElementsAre(Small::kBos, Small::Word("alpha"), Small::Word(" beta")));
  }
  EXPECT_THAT(generator.GenerateFromIds({C('x')}, {.max_new_tokens = 1}, {}).prompt_ids, ElementsAre(C('x')));
}

TEST_F(TextGeneratorTest, RefusesATextThatIsEmptyOrCannotFit) {
  TextGenerator generator(folder_.path(), backend_, {.max_context = 16});
  EXPECT_THROW(generator.Generate("", {.max_new_tokens = 1}, {}), Error);
  // So long that it is refused before it is cut into tokens.
  EXPECT_THROW(generator.Generate(std::string(100'000, 'a'), {.max_new_tokens = 1}, {}), Error);
}

// Field report 9: the answer ends at each id of the union of both files, whatever else is set; text that only looks
// like an end is kept.
TEST_F(TextGeneratorTest, EndsAtEveryEosOfBothFiles) {
  const_cast<ModelPlan&>(backend_.plan()).config.eos_token_ids = {Small::kEos, Small::kTurnEnd};
  folder_.Write("generation_config.json", R"({"eos_token_id": [1, 106, 50], "do_sample": false})");
  for (const int32_t eos : {Small::kEos, Small::kTurnEnd, Small::kToolResponse}) {
    for (const Speculation speculation : {Speculation::kNone, Speculation::kNgram}) {
      backend_.script = [eos](std::span<const int32_t> text) {
        return text.size() == 4 ? eos : text.size() > 4 ? Small::Word("user\n") : C('a');
      };
      GenerateOptions options{.max_new_tokens = 200, .temperature = 0.9, .top_k = 1, .speculation = speculation};
      const GenerateResult result = FromIds(options);
      EXPECT_EQ(result.text, "aaa") << eos;
      EXPECT_EQ(result.finish, FinishReason::kStop);
      EXPECT_EQ(result.ids.size(), 3u);
    }
  }
  std::vector<int32_t> literal;
  for (const char c : std::string("<end_of_turn> ")) literal.push_back(C(c));
  literal.push_back(Small::Word("done"));
  Say(literal);
  EXPECT_EQ(FromIds({}).text, "<end_of_turn> done");
}

TEST_F(TextGeneratorTest, IgnoreEosRunsToTheLimit) {
  folder_.Write("generation_config.json", R"({"eos_token_id": 1})");
  Say({C('a')});
  const GenerateResult result = FromIds({.max_new_tokens = 5, .ignore_eos = true});
  EXPECT_EQ(result.ids.size(), 5u);
  EXPECT_EQ(result.text, "a");  // special tokens have no text
  EXPECT_EQ(result.finish, FinishReason::kLength);
}

// Field report 33.
TEST_F(TextGeneratorTest, StopTextsAreCutAcrossTokens) {
  folder_.Write("generation_config.json", R"({"eos_token_id": 1})");
  for (const Speculation speculation : {Speculation::kNone, Speculation::kNgram}) {
    Say({Small::Word("alpha"), Small::Word(" beta"), Small::Word(" gamma"), Small::Word(" delta")});
    GenerateOptions options{.stop = {"beta gamma"}, .speculation = speculation};
    GenerateResult result = FromIds(options);
    EXPECT_EQ(result.text, "alpha ");
    EXPECT_EQ(result.finish, FinishReason::kStop);
    EXPECT_EQ(result.ids.size(), 3u);  // up to the token that completed it

    Say({Small::Word("The"), Small::Word(" quick"), Small::Word(" brown"), Small::Word(" fox")});
    options.stop = {"own fox"};
    result = FromIds(options);
    EXPECT_EQ(result.text, "The quick br");
    EXPECT_EQ(result.finish, FinishReason::kStop);

    options.stop = {"own foxes"};
    result = FromIds(options);
    EXPECT_EQ(result.text, "The quick brown fox");
    EXPECT_EQ(result.ids.size(), 4u);

    options.stop = {""};
    EXPECT_THROW(FromIds(options), Error);
  }
}

// A stop text in the middle of an accepted draft: the tokens behind it do not count.
TEST_F(TextGeneratorTest, AStopInsideADraftGivesTheSameIds) {
  std::vector<int32_t> prompt, answer;
  for (int i = 0; i < 30; ++i) prompt.push_back(C(static_cast<char>('a' + i % 10)));
  for (int i = 0; i < 37; ++i) answer.push_back(C(static_cast<char>('a' + i % 10)));
  answer.insert(answer.end(), {C('!'), C('b'), C('c'), C('d')});
  for (int stop = 10; stop < 20; ++stop) {
    Say(answer, prompt.size());
    const std::string text = std::string("abcdefghij").substr(static_cast<size_t>(stop % 10), 1);
    GenerateOptions options{.max_new_tokens = 40, .stop = {"!b", "zz"}};
    options.stop.push_back("j" + text);  // only "ja" occurs
    const GenerateResult plain = FromIds(options, prompt);
    options.speculation = Speculation::kNgram;
    const GenerateResult drafted = FromIds(options, prompt);
    EXPECT_EQ(drafted.ids, plain.ids);
    EXPECT_EQ(drafted.text, plain.text);
    EXPECT_GT(drafted.speculation.accepted, 0);
  }
}

// A character of three byte tokens comes out whole; one that is cut off by the limit becomes U+FFFD at the end.
TEST_F(TextGeneratorTest, NeverShowsHalfACharacter) {
  const std::vector<int32_t> kkael = {Small::Byte(0xea), Small::Byte(0xb9), Small::Byte(0xb0)};
  Say(kkael);
  folder_.Write("generation_config.json", R"({"eos_token_id": 1})");
  EXPECT_EQ(FromIds({}).text, "깰");
  EXPECT_THAT(pieces_, ElementsAre("깰"));
  const GenerateResult cut = FromIds({.max_new_tokens = 2});
  EXPECT_THAT(cut.text, HasSubstr("\uFFFD"));
  EXPECT_EQ(pieces_.size(), 1u);
}

TEST_F(TextGeneratorTest, TheCallerCanStop) {
  Say(std::vector<int32_t>(100, C('a')));
  TextGenerator generator(folder_.path(), backend_, {});
  int pieces = 0;
  GenerateResult result = generator.GenerateFromIds({Small::kBos}, {}, [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_EQ(result.text, "aaa");
  GenerateOptions options;
  options.on_step = [](int64_t cached, int64_t prompt) { return cached < prompt; };
  result = generator.GenerateFromIds({Small::kBos}, options, {});
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_EQ(result.ids.size(), 1u);
}

// An exception out of on_text leaves nothing behind in the engine.
TEST_F(TextGeneratorTest, WorksAgainAfterAnException) {
  Say({C('a'), C('b')});
  folder_.Write("generation_config.json", R"({"eos_token_id": 1})");
  TextGenerator generator(folder_.path(), backend_, {});
  const auto fail = [](std::string_view) -> bool { throw std::runtime_error("closed"); };
  EXPECT_THROW(generator.GenerateFromIds({Small::kBos}, {}, fail), std::runtime_error);
  EXPECT_EQ(generator.GenerateFromIds({Small::kBos}, {}, {}).text, "ab");
}

TEST_F(TextGeneratorTest, WithoutATokenizerOnlyIdsWork) {
  TemporaryFolder bare;
  Say({C('a'), C('b')});
  TextGenerator generator(bare.path(), backend_, {});
  const GenerateResult result = generator.GenerateFromIds({7}, {.max_new_tokens = 2}, {});
  EXPECT_THAT(result.ids, ElementsAre(C('a'), C('b')));
  EXPECT_THAT(result.text, IsEmpty());
  EXPECT_THROW(generator.Generate("alpha", {}, {}), Error);
  EXPECT_THROW(generator.GenerateFromIds({7}, {.stop = {"x"}}, {}), Error);
  EXPECT_EQ(generator.tokenizer(), nullptr);
}

TEST_F(TextGeneratorTest, RefusesAVocabularyLargerThanTheTable) {
  FakeBackend small({.vocab = 100});
  try {
    TextGenerator(folder_.path(), small, {});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
    EXPECT_THAT(error.what(), HasSubstr("100"));
  }
}

TEST_F(TextGeneratorTest, SuppressedTokensOfTheModelAreNeverSaid) {
  folder_.Write("generation_config.json", R"({"suppress_tokens": [501, 502, 99999]})");
  backend_.script = [](std::span<const int32_t>) { return 501; };
  for (const int32_t id : FromIds({.max_new_tokens = 10}).ids) EXPECT_TRUE(id != 501 && id != 502) << id;
}

}  // namespace
}  // namespace lapidary
