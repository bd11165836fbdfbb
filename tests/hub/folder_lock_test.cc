#include "hub/folder_lock.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "expect_error.h"
#include "hub_server.h"

namespace lapidary {
namespace {

TEST(FolderLock, MakesTheFolderAndLeavesNothing) {
  const TempFolder folder;
  const std::string nested = folder.File("a/b");
  { const FolderLock lock(nested); }
  EXPECT_TRUE(std::filesystem::is_directory(nested));
  EXPECT_TRUE(std::filesystem::is_empty(nested));
}

TEST(FolderLock, RefusesASecondHolder) {
  const TempFolder folder;
  {
    const FolderLock first(folder.path());
    const std::string text = ExpectError(ErrorKind::kInvalidArgument, [&] { const FolderLock second(folder.path()); });
    EXPECT_THAT(text, ::testing::HasSubstr("another download"));
  }
  const FolderLock third(folder.path());
}

TEST(FolderLock, RefusesWhatIsNoFolderOrCannotBeWritten) {
  const TempFolder folder;
  WriteText(folder.File("file"), "text");
  ExpectError(ErrorKind::kInvalidArgument, [] { const FolderLock lock(""); });
  ExpectError(ErrorKind::kInvalidArgument, [&] { const FolderLock lock(folder.File("file")); });
  ExpectError(ErrorKind::kInvalidArgument, [&] { const FolderLock lock(folder.File("file/below")); });
  ExpectError(ErrorKind::kInvalidArgument, [] { const FolderLock lock("/proc/self"); });
}

}  // namespace
}  // namespace lapidary
