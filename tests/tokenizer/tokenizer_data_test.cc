#include "tokenizer/tokenizer_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "small_tokenizer.h"

namespace lapidary {
namespace {

using testing::HasSubstr;

void ExpectCorrupt(const std::function<void(Json&)>& change, const std::string& part) {
  Json json = SmallTokenizerJson();
  change(json);
  try {
    ParseTokenizer(json);
    FAIL() << "accepted, wanted an error about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
    EXPECT_THAT(error.what(), HasSubstr("small: "));
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(TokenizerDataTest, VocabularyAgainstItself) {
  ExpectCorrupt([](Json& json) { json["model"]["vocab"]["new"] = 261; }, "id 261 twice");
  ExpectCorrupt([](Json& json) { json["model"]["vocab"]["new"] = 10'000'000; }, "found id 10000000");
  ExpectCorrupt([](Json& json) { json["model"]["vocab"] = Json::object(); }, "no token");
  std::string twice = SmallTokenizerJson().dump();
  twice.replace(twice.find("\"abc\":"), 6, "\"aa\" :");
  EXPECT_THROW(Tokenizer::Parse(twice, "small"), Error);
}

TEST(TokenizerDataTest, MergesAgainstTheVocabulary) {
  ExpectCorrupt([](Json& json) { json["model"]["merges"].push_back({"a", "q"}); }, "\"q\"");
  ExpectCorrupt([](Json& json) { json["model"]["merges"].push_back({"q", "a"}); }, "\"q\"");
  ExpectCorrupt([](Json& json) { json["model"]["merges"].push_back({"c", "c"}); }, "number 7: found \"cc\"");
}

TEST(TokenizerDataTest, ByteAndUnknownTokens) {
  ExpectCorrupt([](Json& json) { json["model"]["vocab"].erase("<0xEA>"); }, "no <0xEA>");
  ExpectCorrupt(
      [](Json& json) {
        json["model"]["byte_fallback"] = false;
        json["model"]["unk_token"] = "nothing";
      },
      "unk_token");
}

TEST(TokenizerDataTest, AddedTokensAgainstTheVocabulary) {
  const auto add = [](int id, const char* content) {
    return [=](Json& json) { json["added_tokens"].push_back(SmallAddedToken(id, content, false)); };
  };
  ExpectCorrupt(add(261, "new"), "\"new\" as id 261");  // the id of "a"
  ExpectCorrupt(add(400, "a"), "\"a\" as id 400");      // "a" is 261
  ExpectCorrupt(add(300, "new"), "\"new\" as id 300");  // another added token's
  ExpectCorrupt(add(303, "[x]"), "\"[x]\" as id 303");  // twice
}

TEST(TokenizerDataTest, BosOfThePostProcessor) {
  ExpectCorrupt([](Json& json) { json["post_processor"]["single"][0]["SpecialToken"]["id"] = "<start>"; }, "<start>");
  Json json = SmallTokenizerJson();
  json["post_processor"]["single"][0]["SpecialToken"]["id"] = "<eos>";
  EXPECT_EQ(ParseTokenizer(json).bos_id(), 1);
  json["post_processor"] = nullptr;
  EXPECT_EQ(ParseTokenizer(json).bos_id(), 2);
  json["added_tokens"].erase(2);
  json["model"]["vocab"].erase("<bos>");
  EXPECT_EQ(ParseTokenizer(json).bos_id(), std::nullopt);
}

TEST(TokenizerDataTest, AnyOrderOfParts) {
  const Json json = SmallTokenizerJson();
  const Json& model = json["model"];
  const std::string text = "{\"model\":{\"merges\":" + model["merges"].dump() + ",\"vocab\":" + model["vocab"].dump() +
                           ",\"byte_fallback\":true,\"type\":\"BPE\"},\"decoder\":" + json["decoder"].dump() +
                           ",\"normalizer\":" + json["normalizer"].dump() + "}";
  const Tokenizer tokenizer = Tokenizer::Parse(text, "small");
  EXPECT_EQ(tokenizer.Encode("abc"), ParseTokenizer(json).Encode("abc"));
}

}  // namespace
}  // namespace lapidary
