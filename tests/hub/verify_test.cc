#include "hub/verify.h"

#include <gmock/gmock.h>

#include "expect_error.h"
#include "hub_server.h"

namespace lapidary {
namespace {

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() { WriteText(path_, "hello\n"); }
  std::string Find(const RemoteFile& file) { return FindDifference(path_, file, read_, stop_); }

  TempFolder folder_;
  std::string path_ = folder_.File("file");
  std::atomic<uint64_t> read_ = 0;
  StopFlag stop_;
  // sha256sum and git hash-object of "hello\n".
  const std::string sha256_ = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
  const std::string git_ = "ce013625030ba8dba906f756967f9e9ca394464a";
};

TEST_F(VerifyTest, AcceptsEitherHash) {
  EXPECT_EQ(Find({"file", 6, sha256_, ""}), "");
  EXPECT_EQ(Find({"file", 6, "", git_}), "");
  EXPECT_EQ(Find({"file", 6, "", ""}), "");
  EXPECT_EQ(read_.load(), 18u);
}

TEST_F(VerifyTest, SaysWhatDiffers) {
  EXPECT_EQ(Find({"file", 7, sha256_, ""}), "found 6 bytes, wanted 7");
  const std::string other(64, '0');
  EXPECT_EQ(Find({"file", 6, other, ""}), "found sha256 " + sha256_ + ", wanted " + other);
  EXPECT_EQ(Find({"file", 6, "", std::string(40, '0')}), "found git sha1 " + git_ + ", wanted " + std::string(40, '0'));
}

TEST_F(VerifyTest, StopsAndRefusesWhatIsMissing) {
  ExpectError(ErrorKind::kInvalidArgument, [&] { FindDifference(path_ + "x", {"x", 6, "", ""}, read_, stop_); });
  stop_.Set();
  ExpectError(ErrorKind::kCancelled, [&] { Find({"file", 6, sha256_, ""}); });
}

}  // namespace
}  // namespace lapidary
