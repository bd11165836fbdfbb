#include "tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "small_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace lapidary {
namespace {

using testing::HasSubstr;
using testing::Not;

void ExpectError(const std::string& text, ErrorKind kind, const std::string& part) {
  try {
    TokenizerJson::Parse(text, "file");
    FAIL() << "accepted, wanted an error about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("file: "));
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

void ExpectModelError(const char* key, const Json& value, ErrorKind kind) {
  Json json = SmallTokenizerJson();
  json["model"][key] = value;
  ExpectError(json.dump(), kind, std::string("model.") + key);
}

TEST(TokenizerJsonTest, ReadsEveryPart) {
  const TokenizerJson json = TokenizerJson::Parse(SmallTokenizerJson().dump(), "file");
  EXPECT_EQ(json.vocabulary.size(), 279U);
  ASSERT_EQ(json.merges.size(), 7U);
  EXPECT_EQ(json.merges[2].left, "ab");
  EXPECT_EQ(json.merges[2].right, "c");
  EXPECT_EQ(json.merges[2].left_hash, HashText("ab"));
  EXPECT_EQ(json.added_tokens.size(), 6U);
  EXPECT_EQ(json.unknown_token, "<unk>");
  EXPECT_EQ(json.bos_token, "<bos>");
  EXPECT_TRUE(json.byte_fallback);
  EXPECT_TRUE(json.fuse_unknown);
  EXPECT_FALSE(json.ignore_merges);
}

TEST(TokenizerJsonTest, MergesAsLines) {
  Json text = SmallTokenizerJson();
  text["model"]["merges"] = {"#version: 0.2", "b c", "a b"};
  const TokenizerJson json = TokenizerJson::Parse(text.dump(), "file");
  ASSERT_EQ(json.merges.size(), 2U);
  EXPECT_EQ(json.merges[1].left, "a");
  EXPECT_EQ(json.merges[1].right, "b");
}

TEST(TokenizerJsonTest, TextsWithEscapes) {
  Json text = SmallTokenizerJson();
  text["model"]["vocab"]["\"\\\n\u0001"] = 400;
  const std::string dump = text.dump(-1, ' ', true);
  const TokenizerJson json = TokenizerJson::Parse(dump, "file");
  const auto has = [&](std::string_view wanted) {
    return std::any_of(json.vocabulary.begin(), json.vocabulary.end(),
                       [&](const RawToken& token) { return token.text == wanted; });
  };
  EXPECT_TRUE(has("\"\\\n\u0001"));
  EXPECT_TRUE(has("\u2581a"));
}

TEST(TokenizerJsonTest, NotJson) {
  for (const char* text :
       {"", " ", "x", "{", "[]", "null", "{\"model\"", "{\"model\":}", "{}", "{\"model\": 1}", "\xFF\xFE"}) {
    ExpectError(text, ErrorKind::kCorruptFile, "");
  }
  ExpectError(SmallTokenizerJson().dump() + "x", ErrorKind::kCorruptFile, "");
  ExpectError(SmallTokenizerJson().dump() + "{}", ErrorKind::kCorruptFile, "more text");
}

TEST(TokenizerJsonTest, CutAnywhere) {
  const std::string whole = SmallTokenizerJson().dump();
  for (size_t length = 0; length < whole.size(); length += 37) {
    EXPECT_THROW(TokenizerJson::Parse(whole.substr(0, length), "file"), Error) << length;
  }
}

TEST(TokenizerJsonTest, DeepNesting) {
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  for (const char* key : {"normalizer", "decoder", "added_tokens", "model", "post_processor"}) {
    Json json = SmallTokenizerJson();
    json.erase(key);
    const std::string rest = json.dump().substr(1);
    EXPECT_THROW(TokenizerJson::Parse("{\"" + std::string(key) + "\":" + deep + "," + rest, "file"), Error) << key;
  }
}

TEST(TokenizerJsonTest, WrongModel) {
  ExpectModelError("type", "Unigram", ErrorKind::kUnsupported);
  ExpectModelError("dropout", 0.1, ErrorKind::kUnsupported);
  ExpectModelError("continuing_subword_prefix", "##", ErrorKind::kUnsupported);
  ExpectModelError("end_of_word_suffix", "</w>", ErrorKind::kUnsupported);
  ExpectModelError("type", 3, ErrorKind::kCorruptFile);
  ExpectModelError("fuse_unk", "yes", ErrorKind::kCorruptFile);
  ExpectModelError("unk_token", 3, ErrorKind::kCorruptFile);
}

TEST(TokenizerJsonTest, WrongVocabulary) {
  for (const Json& id : {Json(-1), Json(1 << 24), Json(1.5), Json("1"), Json(nullptr), Json(uint64_t{1} << 63)}) {
    ExpectModelError("vocab", {{"a", id}}, ErrorKind::kCorruptFile);
  }
  ExpectModelError("vocab", Json::array({"a"}), ErrorKind::kCorruptFile);
}

TEST(TokenizerJsonTest, WrongMerges) {
  for (const Json& merge : {Json("ab"), Json("a b c"), Json(1), Json::array({"a"}), Json::array({"a", "b", "c"}),
                            Json::array({"a", 1}), Json(nullptr)}) {
    ExpectModelError("merges", Json::array({merge}), ErrorKind::kCorruptFile);
  }
  ExpectModelError("merges", Json::object(), ErrorKind::kCorruptFile);
}

TEST(TokenizerJsonTest, MissingParts) {
  for (const char* key : {"type", "vocab", "merges"}) {
    Json json = SmallTokenizerJson();
    json["model"].erase(key);
    ExpectError(json.dump(), ErrorKind::kCorruptFile, std::string("no ") + key);
  }
  for (const char* key : {"normalizer", "decoder"}) {
    Json json = SmallTokenizerJson();
    json.erase(key);
    ExpectError(json.dump(), ErrorKind::kUnsupported, key);
  }
}

}  // namespace
}  // namespace lapidary
