#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace lapidary {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() : folder_(std::filesystem::temp_directory_path() / ("lapidary_map_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::filesystem::path folder_;
};

std::string Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

template <typename Action>
ErrorKind KindOf(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.kind();
  }
  ADD_FAILURE() << "found no error";
  return ErrorKind::kCancelled;
}

TEST_F(MappedFileTest, MapsAndReadsTheSameBytes) {
  const std::string text = std::string(10'000, 'a') + std::string("\0\xff\n", 3);
  const std::string path = Write("file", text);
  const MappedFile file = MappedFile::Open(path);
  EXPECT_EQ(Text(file), text);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(ReadFile(path), text);
  file.Populate(file.bytes().subspan(5000, 100));
  file.Populate({});
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  const std::string path = Write("empty", "");
  EXPECT_TRUE(MappedFile::Open(path).bytes().empty());
  EXPECT_EQ(ReadFile(path), "");
}

TEST_F(MappedFileTest, SpansOutliveAMove) {
  MappedFile first = MappedFile::Open(Write("file", "hello"));
  const std::span<const std::byte> bytes = first.bytes();
  MappedFile second = std::move(first);
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), bytes.data());
  EXPECT_EQ(Text(third), "hello");
}

TEST_F(MappedFileTest, WhatCannotBeReadIsAnError) {
  const auto both = [](const std::string& path, ErrorKind kind) {
    EXPECT_EQ(KindOf([&] { MappedFile::Open(path); }), kind) << path;
    EXPECT_EQ(KindOf([&] { ReadFile(path); }), kind) << path;
  };
  both((folder_ / "nowhere").string(), ErrorKind::kNotFound);
  both(Write("file", "x") + "/below", ErrorKind::kNotFound);
  both("", ErrorKind::kNotFound);
  both(folder_.string(), ErrorKind::kInvalidArgument);
  both("/dev/zero", ErrorKind::kInvalidArgument);
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  both(pipe, ErrorKind::kInvalidArgument);  // at once, without waiting for a writer
  if (::geteuid() != 0) {
    const std::string secret = Write("secret", "x");
    ::chmod(secret.c_str(), 0);
    both(secret, ErrorKind::kInvalidArgument);
  }
}

TEST_F(MappedFileTest, ReadingHasALimit) {
  const std::string path = Write("file", "12345");
  EXPECT_EQ(ReadFile(path, 5), "12345");
  EXPECT_EQ(KindOf([&] { ReadFile(path, 4); }), ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace lapidary
