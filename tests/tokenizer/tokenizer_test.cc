#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "small_tokenizer.h"

namespace lapidary {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<int32_t>;

#define SKIP_WITHOUT(tokenizer) \
  if ((tokenizer) == nullptr) GTEST_SKIP() << "no tokenizer.json of the real size in " << SharedFolder()

Ids Reversed(Ids ids) { return {ids.rbegin(), ids.rend()}; }

Json GoldenTokenizer() {
  std::ifstream file(SharedFolder() / "golden/tokenizer.json");
  return file ? Json::parse(file) : Json();
}

std::string Repeated(const std::string& unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += unit;
  return text;
}

TEST(TokenizerTest, MergesByRankThenLeftmost) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_THAT(tokenizer.Encode("ab"), ElementsAre(264));
  EXPECT_THAT(tokenizer.Encode("abc"), ElementsAre(261, 265));  // "b c" outranks "a b"
  EXPECT_THAT(tokenizer.Encode("aaa"), ElementsAre(267, 261));
  EXPECT_THAT(tokenizer.Encode("aaaaa"), ElementsAre(268, 261));
  EXPECT_THAT(tokenizer.Encode(""), IsEmpty());
}

TEST(TokenizerTest, SpacesAreMarks) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_THAT(tokenizer.Encode(" a"), ElementsAre(269));
  EXPECT_THAT(tokenizer.Encode("\u2581a"), ElementsAre(269));
  EXPECT_THAT(tokenizer.Encode("   a"), ElementsAre(270, 269));
  EXPECT_EQ(tokenizer.Decode(Ids{270, 269}), "   a");
}

TEST(TokenizerTest, CharactersWithoutTokenBecomeBytes) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_THAT(tokenizer.Encode("a\uae70"), ElementsAre(261, 4 + 0xEA, 4 + 0xB9, 4 + 0xB0));
  EXPECT_THAT(tokenizer.Encode("\u00e9"), ElementsAre(278));
}

TEST(TokenizerTest, BytesThatAreNotUtf8ReadAsReplacementCharacters) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_EQ(tokenizer.Encode("a\xF0\x9F\x98 b\xFF"), tokenizer.Encode("a\uFFFD b\uFFFD"));
}

TEST(TokenizerTest, BosOnRequest) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_THAT(tokenizer.Encode("ab", {.add_bos = true}), ElementsAre(2, 264));
  EXPECT_THAT(tokenizer.Encode("", {.add_bos = true}), ElementsAre(2));
  EXPECT_EQ(tokenizer.bos_id(), 2);
}

TEST(TokenizerTest, AddedTokensInText) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_THAT(tokenizer.Encode("<bos>a<|turn>b<|turn[x]"), ElementsAre(2, 261, 300, 262, 301, 302));
  EXPECT_THAT(tokenizer.Encode("<|turn>", {.match_special = false}).size(), testing::Gt(1));
  EXPECT_THAT(tokenizer.Encode("a[x]", {.match_special = false}), ElementsAre(261, 302));
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("<|turn>", {.match_special = false})), "<|turn>");
}

TEST(TokenizerTest, NormalizedAddedTokensAreFoundAfterTheNormalizer) {
  Json json = SmallTokenizerJson();
  json["added_tokens"].push_back(SmallAddedToken(303, "b c", false));
  json["added_tokens"].back()["normalized"] = true;
  const Tokenizer tokenizer = ParseTokenizer(json);
  EXPECT_THAT(tokenizer.Encode("ab ca"), ElementsAre(261, 303, 261));
  EXPECT_THAT(tokenizer.Encode("ab\u2581ca"), ElementsAre(261, 303, 261));
}

TEST(TokenizerTest, IgnoreMergesTakesAWholeStretch) {
  Json json = SmallTokenizerJson();
  json["model"]["ignore_merges"] = true;
  const Tokenizer tokenizer = ParseTokenizer(json);
  EXPECT_THAT(tokenizer.Encode("abc"), ElementsAre(266));
  EXPECT_THAT(tokenizer.Encode("abca"), ElementsAre(261, 265, 261));
}

TEST(TokenizerTest, UnknownTokenWithoutByteFallback) {
  Json json = SmallTokenizerJson();
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(ParseTokenizer(json).Encode("azzb\u4f60"), ElementsAre(261, 3, 262, 3));
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(ParseTokenizer(json).Encode("azzb"), ElementsAre(261, 3, 3, 262));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT(ParseTokenizer(json).Encode("azzb"), ElementsAre(264));
}

TEST(TokenizerTest, DecodeJoinsBytesOfARun) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  const Ids bytes = {4 + 0xEA, 4 + 0xB9, 4 + 0xB0};
  EXPECT_EQ(tokenizer.Decode(bytes), "\uae70");
  EXPECT_EQ(tokenizer.Decode(Reversed(bytes)), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer.Decode(Ids{4 + 'N', 4 + 0xEA, 261}), "\uFFFD\uFFFDa");  // the run as a whole is not UTF-8
  EXPECT_EQ(tokenizer.Decode(Ids{4 + 0xEA, 300, 4 + 0xB9, 4 + 0xB0}, true), "\uae70");
  EXPECT_EQ(tokenizer.Decode(Ids{4 + 0xEA, 300, 4 + 0xB9, 4 + 0xB0}), "\uFFFD<|turn>\uFFFD\uFFFD");
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAreRefused) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_EQ(tokenizer.size(), 303);
  EXPECT_EQ(tokenizer.Decode(Ids{299}), "");  // a gap
  for (const int32_t id : {-1, 303, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tokenizer.Decode(Ids{id}), Error);
    EXPECT_THROW(tokenizer.IsSpecial(id), Error);
    EXPECT_THROW(tokenizer.Piece(id), Error);
  }
}

TEST(TokenizerTest, TokensByTextAndId) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  EXPECT_EQ(tokenizer.Find("\u2581a"), 269);
  EXPECT_EQ(tokenizer.Find("<|turn>"), 300);
  EXPECT_EQ(tokenizer.Find("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.Piece(269), " a");
  EXPECT_EQ(tokenizer.Piece(4 + 0xEA), "\xEA");
  EXPECT_TRUE(tokenizer.IsByte(4));
  EXPECT_FALSE(tokenizer.IsByte(261));
  EXPECT_TRUE(tokenizer.IsSpecial(300));
  EXPECT_FALSE(tokenizer.IsSpecial(302));
}

TEST(TokenizerTest, MissingFileIsNotFound) {
  try {
    Tokenizer::Load("/nowhere/tokenizer.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
  }
}

TEST(TokenizerTest, DemoModelsTokenizer) {
  const Tokenizer tokenizer = Tokenizer::Load(LAPIDARY_SOURCE_DIR "/models/demo/tokenizer.json");
  EXPECT_EQ(tokenizer.bos_id(), 2);
  EXPECT_EQ(tokenizer.Find("<turn|>"), 106);
  const std::string text = "The capital of France is\n\n  \uae70 \U0001F60A";
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
  EXPECT_THAT(tokenizer.Encode("<|turn>", {.add_bos = true}), ElementsAre(2, 105));
}

TEST(TokenizerTest, GoldenEncode) {
  const Tokenizer* tokenizer = RealTokenizer();
  SKIP_WITHOUT(tokenizer);
  const Json golden = GoldenTokenizer();
  ASSERT_GT(golden["encode"].size(), 900U);
  for (const Json& entry : golden["encode"]) {
    EXPECT_EQ(tokenizer->Encode(entry["text"].get<std::string>()), entry["ids"].get<Ids>()) << entry["text"];
  }
}

TEST(TokenizerTest, GoldenRepeat) {
  const Tokenizer* tokenizer = RealTokenizer();
  SKIP_WITHOUT(tokenizer);
  const Json golden = GoldenTokenizer();
  ASSERT_FALSE(golden["repeat"].empty());
  for (const Json& entry : golden["repeat"]) {
    const Ids ids = tokenizer->Encode(Repeated(entry["unit"], entry["count"]));
    ASSERT_EQ(ids.size(), entry["n_ids"].get<size_t>()) << entry["unit"];
    const auto head = entry["head"].get<Ids>();
    const auto tail = entry["tail"].get<Ids>();
    EXPECT_TRUE(std::equal(head.begin(), head.end(), ids.begin())) << entry["unit"];
    EXPECT_TRUE(std::equal(tail.rbegin(), tail.rend(), ids.rbegin())) << entry["unit"];
  }
}

TEST(TokenizerTest, GoldenDecode) {
  const Tokenizer* tokenizer = RealTokenizer();
  SKIP_WITHOUT(tokenizer);
  const Json golden = GoldenTokenizer();
  ASSERT_GT(golden["decode"].size(), 300U);
  for (const Json& entry : golden["decode"]) {
    const auto ids = entry["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->Decode(ids), entry["text"].get<std::string>());
    EXPECT_EQ(tokenizer->Decode(ids, true), entry["text_skip_special"].get<std::string>());
  }
}

TEST(TokenizerTest, FieldReport1NewlineRuns) {
  const Tokenizer* tokenizer = RealTokenizer();
  SKIP_WITHOUT(tokenizer);
  EXPECT_THAT(tokenizer->Encode("1\n2\n\n3\n\n\n4\n\n\n\n5\n\n\n\n\n6"),
              ElementsAre(236770, 107, 236778, 108, 236800, 109, 236812, 110, 236810, 111, 236825));
}

TEST(TokenizerTest, FieldReport2NoSplitRules) {
  const Tokenizer* tokenizer = RealTokenizer();
  SKIP_WITHOUT(tokenizer);
  EXPECT_THAT(tokenizer->Encode("Hello world! Café déjà vu — 123 😊"),
              ElementsAre(9259, 1902, 236888, 62367, 29234, 11042, 2192, 236743, 236770, 236778, 236800, 103453));
}

TEST(TokenizerTest, FieldReport3RandomWordsComeBack) {
  const Tokenizer* tokenizer = RealTokenizer();
  SKIP_WITHOUT(tokenizer);
  EXPECT_THAT(tokenizer->Encode(" Linus"), ElementsAre(9684, 605));
  std::mt19937 random(3);
  for (int word = 0; word < 10'000; ++word) {
    std::string text;
    for (unsigned n = 1 + random() % 12; n > 0; --n) {
      const uint32_t planes[] = {0x80, 0x800, 0x10000, 0x110000};
      const uint32_t c = random() % planes[random() % 4];
      if (c == 0x2581 || (c >= 0xD800 && c < 0xE000)) continue;
      if (c < 0x80) {
        text += static_cast<char>(c);
      } else if (c < 0x800) {
        text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
      } else if (c < 0x10000) {
        text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
                 static_cast<char>(0x80 | (c & 0x3F))};
      } else {
        text += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
                 static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
      }
    }
    ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
}

TEST(TokenizerTest, FieldReport5OneVeryLongLine) {
  const Tokenizer* tokenizer = RealTokenizer();
  SKIP_WITHOUT(tokenizer);
  EXPECT_EQ(tokenizer->Encode(std::string(200'000, 'a')), Ids(25'000, 128820));
  std::mt19937 random(5);
  std::string letters(200'000, ' ');
  for (char& c : letters) c = static_cast<char>('a' + random() % 26);
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(letters)), letters);
  Ids pairs(66'667, 763);
  pairs.front() = 596;
  pairs.back() = 236743;
  EXPECT_EQ(tokenizer->Encode(Repeated("ab ", 66'666)), pairs);
}

}  // namespace
}  // namespace lapidary
