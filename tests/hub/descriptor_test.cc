#include "hub/descriptor.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>

#include "base/mapped_file.h"
#include "expect_error.h"
#include "hub_server.h"

namespace lapidary {
namespace {

TEST(Descriptor, ClosesOnceAfterAMove) {
  const TempFolder folder;
  int fd = -1;
  {
    Descriptor first = OpenFile(folder.File("a"), O_RDWR | O_CREAT);
    fd = first.get();
    const Descriptor second = std::move(first);
    EXPECT_EQ(second.get(), fd);
    EXPECT_NE(::fcntl(fd, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST(Descriptor, DoesNotOpenThroughALink) {
  const TempFolder folder;
  WriteText(folder.File("target"), "precious");
  std::filesystem::create_symlink(folder.File("target"), folder.File("link"));
  ExpectError(ErrorKind::kInvalidArgument, [&] { OpenFile(folder.File("link"), O_RDWR | O_CREAT | O_TRUNC); });
  EXPECT_EQ(ReadFile(folder.File("target")), "precious");
}

TEST(Descriptor, FullDiskIsItsOwnKind) {
  ExpectError(ErrorKind::kOutOfMemory, [] { ThrowFileError("cannot write", "x", ENOSPC); });
  EXPECT_EQ(ExpectError(ErrorKind::kInvalidArgument, [] { ThrowFileError("cannot write", "x", EACCES); }),
            "cannot write x: Permission denied");
  const Descriptor full(::open("/dev/full", O_WRONLY));
  if (!full.is_open()) GTEST_SKIP() << "no /dev/full";
  ExpectError(ErrorKind::kOutOfMemory, [&] { WriteAt(full.get(), "text", 4, 0, "/dev/full"); });
}

TEST(Descriptor, ReplacesAFileWhole) {
  const TempFolder folder;
  WriteText(folder.File("state"), "a long old text");
  WriteFileAtomically(folder.File("state"), "new");
  SyncFolder(folder.path());
  EXPECT_EQ(ReadFile(folder.File("state")), "new");
  EXPECT_FALSE(std::filesystem::exists(folder.File("state.tmp")));
}

}  // namespace
}  // namespace lapidary
