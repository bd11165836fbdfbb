#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "small_tokenizer.h"
#include "tokenizer/utf8.h"

namespace lapidary {
namespace {

using Ids = std::vector<int32_t>;

std::string Streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  IncrementalDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    text += piece;
  }
  return text + decoder.Finish();
}

TEST(IncrementalDecoderTest, FieldReport7ACharacterComesWithItsLastByte) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  IncrementalDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.Push(4 + 0xEA), "");
  EXPECT_EQ(decoder.Push(4 + 0xB9), "");
  EXPECT_EQ(decoder.Push(4 + 0xB0), "\uae70");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(IncrementalDecoderTest, FieldReport7NoReplacementInAnyDelta) {
  const Tokenizer* tokenizer = RealTokenizer();
  if (tokenizer == nullptr) GTEST_SKIP() << "no tokenizer.json of the real size in " << SharedFolder();
  const std::string text = "깰 깰 👩‍👩‍👧‍👦 🇨🇭";
  IncrementalDecoder decoder(*tokenizer);
  std::string joined;
  for (const int32_t id : tokenizer->Encode(text)) {
    const std::string piece = decoder.Push(id);
    EXPECT_EQ(piece.find(kReplacementUtf8), std::string::npos);
    joined += piece;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(IncrementalDecoderTest, UnfinishedCharacterAtTheEnd) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  IncrementalDecoder decoder(tokenizer);
  decoder.Push(4 + 0xEA);
  decoder.Push(4 + 0xB9);
  EXPECT_EQ(decoder.Finish(), "\uFFFD\uFFFD");
  EXPECT_EQ(decoder.Push(261), "a");  // started over
}

TEST(IncrementalDecoderTest, UnfinishedCharacterBeforeText) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  IncrementalDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.Push(4 + 0xEA), "");
  EXPECT_EQ(decoder.Push(261), "\uFFFDa");
}

TEST(IncrementalDecoderTest, SkippedSpecialsDoNotEndARun) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  const Ids ids = {4 + 0xEA, 300, 4 + 0xB9, 4 + 0xB0};
  EXPECT_EQ(Streamed(tokenizer, ids, true), "\uae70");
  EXPECT_EQ(Streamed(tokenizer, ids, false), "\uFFFD<|turn>\uFFFD\uFFFD");
}

TEST(IncrementalDecoderTest, CharactersGivenOutStandWhenTheRunTurnsInvalid) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  const Ids ids = {4 + 'N', 4 + 0xFF, 4 + 'M', 261};
  EXPECT_EQ(Streamed(tokenizer, ids, true), "N\uFFFD\uFFFDa");
  EXPECT_EQ(tokenizer.Decode(ids, true), "\uFFFD\uFFFD\uFFFDa");
}

TEST(IncrementalDecoderTest, BadIdChangesNothing) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  IncrementalDecoder decoder(tokenizer);
  decoder.Push(4 + 0xC3);
  EXPECT_THROW(decoder.Push(100'000), Error);
  EXPECT_EQ(decoder.Push(4 + 0xA9), "\u00e9");
}

// A run that is not UTF-8 differs from Decode only if it begins with a whole character.
bool StreamsExactly(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  std::string run;
  const auto exact = [&] {
    const bool whole_first = !run.empty() && ClassifyUtf8(run).state == Utf8State::kComplete;
    const bool exact_run = IsValidUtf8(run) || !whole_first;
    run.clear();
    return exact_run;
  };
  for (const int32_t id : ids) {
    if (skip_special && tokenizer.IsSpecial(id)) continue;
    if (tokenizer.IsByte(id)) {
      run += tokenizer.Piece(id);
    } else if (!exact()) {
      return false;
    }
  }
  return exact();
}

TEST(IncrementalDecoderTest, JoinedPiecesEqualDecode) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  const int32_t choices[] = {4 + 0xEA, 4 + 0xB9, 4 + 0xB0, 4 + 0xC3, 4 + 0xF0, 4 + 0x9F, 4 + 'N', 261, 300, 302};
  std::mt19937 random(1);
  int compared = 0;
  for (int round = 0; round < 20'000; ++round) {
    Ids ids(random() % 8);
    for (int32_t& id : ids) id = choices[random() % std::size(choices)];
    for (const bool skip_special : {false, true}) {
      if (!StreamsExactly(tokenizer, ids, skip_special)) continue;
      ++compared;
      ASSERT_EQ(Streamed(tokenizer, ids, skip_special), tokenizer.Decode(ids, skip_special));
    }
  }
  EXPECT_GT(compared, 20'000);
}

TEST(IncrementalDecoderTest, EverySplitOfAText) {
  const Tokenizer tokenizer = ParseTokenizer(SmallTokenizerJson());
  const std::string text = "a \u4f60\U0001F60A\u00e9\u00df b";
  const Ids ids = tokenizer.Encode(text);
  for (size_t split = 0; split <= ids.size(); ++split) {
    IncrementalDecoder decoder(tokenizer);
    std::string before, after;
    for (size_t i = 0; i < ids.size(); ++i) (i < split ? before : after) += decoder.Push(ids[i]);
    EXPECT_TRUE(IsValidUtf8(before));
    EXPECT_TRUE(IsValidUtf8(after));
    EXPECT_EQ(before + after, text);
  }
}

}  // namespace
}  // namespace lapidary
