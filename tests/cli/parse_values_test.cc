#include "cli/parse_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/usage_error.h"
#include "run_program.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ParseIds, AcceptsListsWithAndWithoutBrackets) {
  EXPECT_THAT(ParseIds("2,651,9", "ids"), ElementsAre(2, 651, 9));
  EXPECT_THAT(ParseIds(" [2, 651 ,9]\n", "ids"), ElementsAre(2, 651, 9));
  EXPECT_THAT(ParseIds("0", "ids"), ElementsAre(0));
  EXPECT_THAT(ParseIds("2147483647", "ids"), ElementsAre(2147483647));
  EXPECT_THAT(ParseIds("", "ids"), IsEmpty());
  EXPECT_THAT(ParseIds("[ ]", "ids"), IsEmpty());
}

TEST(ParseIds, RefusesEverythingElseInOneLine) {
  for (const char* bad : {"2,", ",2", "2,,3", "x", "2 3", "-1", "2147483648", "99999999999999999999", "1.5", "[1", "1]",
                          "[[1]]", "0x10", "+1", "1,\n\x01", "1;2", "[", "\"1\""}) {
    try {
      ParseIds(bad, "--prompt-ids");
      ADD_FAILURE() << "accepted " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("--prompt-ids"));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(ReadIds, ReadsAFile) {
  const TestFolder folder;
  WriteText(folder / "ids", "[2, 3]\n");
  EXPECT_THAT(ReadIds("@" + (folder / "ids"), "ids"), ElementsAre(2, 3));
  EXPECT_THAT(ReadIds("2,3", "ids"), ElementsAre(2, 3));
  EXPECT_THROW(ReadIds("@" + (folder / "none"), "ids"), Error);
  WriteText(folder / "ids", "2, x\n");
  EXPECT_THROW(ReadIds("@" + (folder / "ids"), "ids"), Error);
  EXPECT_THROW(ReadIds("2, x", "ids"), UsageError);
}

TEST(ParseCounts, AcceptsPositiveNumbers) {
  EXPECT_THAT(ParseCounts("512,2048", "-p"), ElementsAre(512, 2048));
  for (const char* bad : {"", "0", "5,0", "-3", "a", "1,", "2147483648"})
    EXPECT_THROW(ParseCounts(bad, "-p"), UsageError) << bad;
}

TEST(ParseLogitBias, NeedsAnIdAndAFiniteValue) {
  EXPECT_THAT(ParseLogitBias("651=-2.5"), Pair(651, -2.5));
  EXPECT_THAT(ParseLogitBias("0=+1e2"), Pair(0, 100.0));
  for (const char* bad :
       {"", "=", "5", "5=", "=1", "-1=2", "5=x", "5=inf", "5=nan", "5=1=2", "5=1e999", "5=+-1", "a=1"}) {
    EXPECT_THROW(ParseLogitBias(bad), UsageError) << bad;
  }
}

TEST(RepositoryName, IsThePartBehindTheOwner) {
  EXPECT_EQ(RepositoryName("google/gemma-4-E2B"), "gemma-4-E2B");
  for (const char* bad : {"", "/", "a", "a/", "/b", "a/b/c", "../x", "x/..", "a/b c", "a/b\n"}) {
    EXPECT_THROW(RepositoryName(bad), UsageError) << bad;
  }
}

}  // namespace
}  // namespace lapidary
