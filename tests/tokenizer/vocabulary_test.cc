#include "tokenizer/vocabulary.h"

#include <gtest/gtest.h>

#include <set>

namespace lapidary {
namespace {

TEST(VocabularyTest, FindsByTextAndById) {
  constexpr int32_t kTokens = 5000;
  Vocabulary vocabulary(kTokens, 8 * kTokens, 2 * kTokens);
  for (int32_t i = 0; i < kTokens; ++i) {
    const std::string text = std::to_string(i) + "t";
    ASSERT_EQ(vocabulary.Add(text, HashText(text), 2 * i), Vocabulary::AddResult::kAdded);
  }
  for (int32_t i = 0; i < kTokens; ++i) {
    EXPECT_EQ(vocabulary.Find(std::to_string(i) + "t"), 2 * i);
    EXPECT_EQ(vocabulary.Text(2 * i), std::to_string(i) + "t");
    EXPECT_TRUE(vocabulary.Contains(2 * i));
    EXPECT_FALSE(vocabulary.Contains(2 * i + 1));
    EXPECT_EQ(vocabulary.Text(2 * i + 1), "");
  }
  EXPECT_EQ(vocabulary.Find("5000t"), -1);
  EXPECT_EQ(vocabulary.Find(""), -1);
  EXPECT_EQ(vocabulary.id_limit(), 2 * kTokens);
}

TEST(VocabularyTest, TellsWhatIsTaken) {
  Vocabulary vocabulary(3, 16, 8);
  EXPECT_EQ(vocabulary.Add("", HashText(""), 1), Vocabulary::AddResult::kAdded);
  EXPECT_EQ(vocabulary.Add("a", HashText("a"), 2), Vocabulary::AddResult::kAdded);
  EXPECT_EQ(vocabulary.Add("a", HashText("a"), 3), Vocabulary::AddResult::kTextTaken);
  EXPECT_EQ(vocabulary.Add("b", HashText("b"), 2), Vocabulary::AddResult::kIdTaken);
  EXPECT_EQ(vocabulary.Find(""), 1);
  EXPECT_EQ(vocabulary.Find("b"), -1);
}

TEST(VocabularyTest, EqualHashesAreToldApart) {
  Vocabulary vocabulary(3, 16, 8);
  vocabulary.Add("a", 7, 0);
  vocabulary.Add("b", 7, 1);
  EXPECT_EQ(vocabulary.Find("a", 7), 0);
  EXPECT_EQ(vocabulary.Find("b", 7), 1);
  EXPECT_EQ(vocabulary.Find("c", 7), -1);
}

TEST(VocabularyTest, HashSeesEveryByteAndTheLength) {
  for (size_t length = 1; length < 40; ++length) {
    std::set<uint32_t> hashes = {HashText(std::string(length, 'a')), HashText(std::string(length - 1, 'a'))};
    for (size_t at = 0; at < length; ++at) {
      std::string text(length, 'a');
      text[at] = 'b';
      hashes.insert(HashText(text));
    }
    EXPECT_EQ(hashes.size(), length + 2);
  }
}

}  // namespace
}  // namespace lapidary
