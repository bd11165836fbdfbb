#include "cli/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/tensor_index.h"
#include "run_program.h"

namespace lapidary {
namespace {

TEST(SafetensorsWriter, WritesPiecesInAnyOrder) {
  const TestFolder folder;
  const std::string path = folder / "model.safetensors";
  {
    SafetensorsWriter writer(path, {{"a", {2, 3}}, {"b", {1}}});
    writer.Write(1, 0, std::vector<float>{7});
    writer.Write(0, 3, std::vector<float>{4, 5, 6});
    writer.Write(0, 0, std::vector<float>{1, 2, 3});
    writer.Finish();
  }
  const TensorIndex index = TensorIndex::Open(folder.path());
  const StoredTensor* a = index.Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  float values[6];
  ASSERT_EQ(a->bytes.size(), sizeof(values));
  std::memcpy(values, a->bytes.data(), sizeof(values));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(values[i], static_cast<float>(i + 1));
  EXPECT_EQ(index.Find("b")->bytes.size(), 4u);
}

TEST(SafetensorsWriter, AnUnfinishedFileIsRemoved) {
  const TestFolder folder;
  { SafetensorsWriter writer(folder / "out", {{"a", {1}}}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, FollowsLinksAndLeavesOtherThingsAlone) {
  const TestFolder folder;
  std::filesystem::create_symlink("target", folder / "link");
  SafetensorsWriter writer(folder / "link", {{"a", {1}}});
  writer.Write(0, 0, std::vector<float>{1});
  writer.Finish();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(folder / "target")));
  EXPECT_THROW(SafetensorsWriter("/dev/null", {{"a", {1}}}), Error);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_THROW(SafetensorsWriter(folder.path(), {{"a", {1}}}), Error);
}

TEST(SafetensorsWriter, SaysWhatItCannotWrite) {
  EXPECT_THROW(SafetensorsWriter("/proc/none/out", {{"a", {1}}}), Error);
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const TestFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / "out.part");
  SafetensorsWriter writer(folder / "out", {{"a", {1}}});
  writer.Write(0, 0, std::vector<float>{1});
  EXPECT_THROW(writer.Finish(), Error);
}

}  // namespace
}  // namespace lapidary
