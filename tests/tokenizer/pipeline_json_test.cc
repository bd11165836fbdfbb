#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "small_tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace lapidary {
namespace {

using testing::HasSubstr;

template <typename Function>
void ExpectError(Function call, ErrorKind kind, const std::string& part) {
  try {
    call();
    FAIL() << "accepted, wanted an error about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("file: "));
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

Json Part(const char* name) { return SmallTokenizerJson()[name]; }

TEST(PipelineJsonTest, Normalizer) {
  CheckNormalizer(Part("normalizer").dump(), "file");
  CheckNormalizer(Json{{"type", "Sequence"}, {"normalizers", {Part("normalizer")}}}.dump(), "file");
  for (const Json& other : {Json(nullptr), Json{{"type", "NFC"}}, Json::array(), Json("x")}) {
    ExpectError([&] { CheckNormalizer(other.dump(), "file"); }, ErrorKind::kUnsupported,
                "normalizer: found " + other.dump());
  }
  Json other = Part("normalizer");
  other["content"] = "_";
  ExpectError([&] { CheckNormalizer(other.dump(), "file"); }, ErrorKind::kUnsupported, "U+2581");
}

TEST(PipelineJsonTest, PreTokenizer) {
  CheckPreTokenizer(Part("pre_tokenizer").dump(), "file");
  CheckPreTokenizer("null", "file");
  Json inverted = Part("pre_tokenizer");
  inverted["invert"] = true;
  for (const Json& other : {Json{{"type", "ByteLevel"}}, inverted, Json{{"type", "Split"}}}) {
    ExpectError([&] { CheckPreTokenizer(other.dump(), "file"); }, ErrorKind::kUnsupported, "pre_tokenizer: found");
  }
}

TEST(PipelineJsonTest, Decoder) {
  CheckDecoder(Part("decoder").dump(), "file");
  Json stripping = Part("decoder");
  stripping["decoders"].push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  for (const Json& other : {Json(nullptr), Json{{"type", "ByteLevel"}}, stripping, Json{{"type", "Sequence"}}}) {
    ExpectError([&] { CheckDecoder(other.dump(), "file"); }, ErrorKind::kUnsupported, "decoder: found");
  }
}

TEST(PipelineJsonTest, PostProcessor) {
  EXPECT_EQ(ReadPostProcessor(Part("post_processor").dump(), "file"), "<bos>");
  EXPECT_EQ(ReadPostProcessor("null", "file"), std::nullopt);
  Json none = Part("post_processor");
  none["single"].erase(0);
  EXPECT_EQ(ReadPostProcessor(none.dump(), "file"), std::nullopt);
  Json with_end = Part("post_processor");
  with_end["single"].push_back(with_end["single"][0]);
  for (const Json& other : {with_end, Json{{"type", "ByteLevel"}}, Json{{"type", "TemplateProcessing"}}, Json(1)}) {
    ExpectError([&] { ReadPostProcessor(other.dump(), "file"); }, ErrorKind::kUnsupported, "post_processor: found");
  }
}

TEST(PipelineJsonTest, AddedTokens) {
  Json token = SmallAddedToken(7, "<x>", true);
  token["lstrip"] = true;
  const std::vector<AddedToken> tokens = ReadAddedTokens(Json::array({token}).dump(), "file");
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(tokens[0].content, "<x>");
  EXPECT_EQ(tokens[0].id, 7);
  EXPECT_TRUE(tokens[0].special);
  EXPECT_TRUE(tokens[0].lstrip);
  EXPECT_FALSE(tokens[0].rstrip);
  EXPECT_TRUE(ReadAddedTokens("null", "file").empty());
}

TEST(PipelineJsonTest, WrongAddedTokens) {
  const std::pair<const char*, Json> faults[] = {{"id", -1},       {"id", 1 << 24}, {"id", "7"},
                                                 {"id", 1.5},      {"content", ""}, {"content", nullptr},
                                                 {"special", "y"}, {"lstrip", 1}};
  for (const auto& [key, value] : faults) {
    Json token = SmallAddedToken(7, "<x>", true);
    token[key] = value;
    ExpectError([&] { ReadAddedTokens(Json::array({token}).dump(), "file"); }, ErrorKind::kCorruptFile, "added_tokens");
  }
  for (const char* text : {"{}", "[1]", "[null]", "[{}]", "x"}) {
    ExpectError([&] { ReadAddedTokens(text, "file"); }, ErrorKind::kCorruptFile, "added_tokens");
  }
}

TEST(PipelineJsonTest, QuotedIsOneShortLine) {
  EXPECT_EQ(Quoted("a\n\"b"), "\"a\\n\\\"b\"");
  EXPECT_LT(Quoted(std::string(100'000, 'x')).size(), 100U);
  EXPECT_EQ(Quoted(std::string(59, 'x') + "\u2581").find('\n'), std::string::npos);
}

}  // namespace
}  // namespace lapidary
