#include "generation/stop_filter.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lapidary {
namespace {

struct Outcome {
  std::string text;
  bool stopped;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& o) { return out << '"' << o.text << "\" " << o.stopped; }

Outcome Feed(const std::vector<std::string>& stops, const std::string& text, size_t piece) {
  StopFilter filter(stops);
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) out += filter.Push(std::string_view(text).substr(i, piece));
  out += filter.Finish();
  return {out, filter.stopped()};
}

TEST(StopFilter, CutsAlikeForEverySizeOfPiece) {
  struct {
    std::vector<std::string> stops;
    std::string text;
    Outcome expected;
  } const cases[] = {
      {{"beta gamma"}, "alpha beta gamma delta", {"alpha ", true}},
      {{"own fox"}, "The quick brown fox", {"The quick br", true}},
      {{"never"}, "nev neve nevermind", {"nev neve ", true}},
      {{"never"}, "nev neve n", {"nev neve n", false}},
      {{"aab"}, "aaaab", {"aa", true}},
      {{"abc", "b"}, "xabcd", {"xa", true}},
      {{"c", "abc"}, "xabcd", {"x", true}},
      {{"one", "two"}, "a two one", {"a ", true}},
      {{"깰"}, "가깰나", {"가", true}},
      {{"x"}, "", {"", false}},
      {{}, "all of it", {"all of it", false}},
  };
  for (const auto& c : cases) {
    for (size_t piece = 1; piece <= c.text.size() + 1; ++piece) {
      EXPECT_EQ(Feed(c.stops, c.text, piece), c.expected) << c.text << " in pieces of " << piece;
    }
  }
}

TEST(StopFilter, HoldsBackOnlyWhatMayBeginAStop) {
  StopFilter filter({"STOP", "##"});
  EXPECT_EQ(filter.Push("some text"), "some text");
  EXPECT_EQ(filter.Push(" S"), " ");
  EXPECT_EQ(filter.Push("T"), "");
  EXPECT_EQ(filter.Push("AR #"), "STAR ");
  EXPECT_EQ(filter.Push("1"), "#1");
  EXPECT_EQ(filter.Push("ST"), "");
  EXPECT_EQ(filter.Finish(), "ST");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, GivesNothingAfterAStop) {
  StopFilter filter({"end"});
  EXPECT_EQ(filter.Push("the end of it"), "the ");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.Push("more"), "");
  EXPECT_EQ(filter.Finish(), "");
}

TEST(StopFilter, RefusesTextsThatCannotStop) {
  EXPECT_THROW(StopFilter({"ok", ""}), Error);
  EXPECT_THROW(StopFilter({"\x80"}), Error);
}

}  // namespace
}  // namespace lapidary
