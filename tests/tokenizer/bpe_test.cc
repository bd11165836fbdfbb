#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace lapidary {
namespace {

using Ids = std::vector<int32_t>;

struct Rule {
  int32_t left;
  int32_t right;
};

// A vocabulary over a few characters with random merges; rules[rank] makes token characters + rank.
struct RandomModel {
  std::vector<std::string> texts;
  std::vector<Rule> rules;
  int32_t characters = 0;

  explicit RandomModel(std::mt19937& random) {
    for (const char* text : {"a", "b", "c", "\u2581", "\u00e9", "\u4f60", "\U0001F60A"}) texts.push_back(text);
    characters = static_cast<int32_t>(texts.size());
    const unsigned wanted = 1 + random() % 40;
    for (unsigned attempt = 0; rules.size() < wanted && attempt < 1000; ++attempt) {
      const auto left = static_cast<int32_t>(random() % texts.size());
      const auto right = static_cast<int32_t>(random() % texts.size());
      const std::string joined = texts[static_cast<size_t>(left)] + texts[static_cast<size_t>(right)];
      if (joined.size() > 24 || std::find(texts.begin(), texts.end(), joined) != texts.end()) continue;
      rules.push_back({left, right});
      texts.push_back(joined);
    }
  }

  Vocabulary MakeVocabulary() const {
    size_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    Vocabulary vocabulary(texts.size(), bytes, static_cast<int32_t>(texts.size()));
    for (size_t id = 0; id < texts.size(); ++id) {
      vocabulary.Add(texts[id], HashText(texts[id]), static_cast<int32_t>(id));
    }
    return vocabulary;
  }

  // The definition: of all neighbours with a merge, the lowest rank first, leftmost first, over the whole text.
  Ids MergeWhole(Ids symbols) const {
    for (;;) {
      size_t best = rules.size(), at = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        for (size_t rank = 0; rank < best; ++rank) {
          if (rules[rank].left == symbols[i] && rules[rank].right == symbols[i + 1]) best = rank, at = i;
        }
      }
      if (best == rules.size()) return symbols;
      symbols[at] = characters + static_cast<int32_t>(best);
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
  }
};

void CompareWithDefinition(std::mt19937& random, size_t length, int rounds) {
  const RandomModel model(random);
  const Vocabulary vocabulary = model.MakeVocabulary();
  BpeModel bpe(vocabulary, model.rules.size(), {});
  for (size_t rank = 0; rank < model.rules.size(); ++rank) {
    const int32_t result = model.characters + static_cast<int32_t>(rank);
    bpe.AddMerge(model.rules[rank].left, model.rules[rank].right, {static_cast<uint32_t>(rank), result});
  }
  for (int round = 0; round < rounds; ++round) {
    Ids symbols(length);
    std::string text;
    const auto used = 1 + random() % static_cast<unsigned>(model.characters);
    for (int32_t& symbol : symbols) {
      symbol = static_cast<int32_t>(random() % used);
      text += symbol == 3 && random() % 2 == 0 ? " " : model.texts[static_cast<size_t>(symbol)];
    }
    Ids ids;
    bpe.Encode(text, ids);
    ASSERT_EQ(ids, model.MergeWhole(symbols)) << text;
  }
}

TEST(BpeTest, CuttingAndMergingEqualTheDefinition) {
  std::mt19937 random(17);
  for (int model = 0; model < 300; ++model) CompareWithDefinition(random, 1 + random() % 60, 5);
}

TEST(BpeTest, LongTextsAndTheCacheEqualTheDefinition) {
  std::mt19937 random(18);
  for (int model = 0; model < 20; ++model) CompareWithDefinition(random, 1500, 1);
}

TEST(BpeTest, AppendsToWhatIsThere) {
  Vocabulary vocabulary(1, 1, 1);
  vocabulary.Add("a", HashText("a"), 0);
  const BpeModel bpe(vocabulary, 0, {});
  Ids ids = {7};
  bpe.Encode("aa", ids);
  bpe.Encode("", ids);
  EXPECT_EQ(ids, (Ids{7, 0, 0}));
}

}  // namespace
}  // namespace lapidary
