#include "hub/part_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "expect_error.h"
#include "hub_server.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kCommit(40, 'c');

RemoteFile TenBytes(char hash = 'a') { return {"model.safetensors", 10, std::string(64, hash), ""}; }

class PartFileTest : public ::testing::Test {
 protected:
  std::string Part() const { return folder_.File("model.safetensors.part"); }
  std::string State() const { return Part() + ".json"; }

  void LeaveHalf(const RemoteFile& file) {
    PartFile part(folder_.path(), file, kCommit);
    part.Allocate();
    part.Write(0, "01234");
    part.SaveState();
  }

  TempFolder folder_;
};

TEST_F(PartFileTest, PublishesUnderTheFinalName) {
  PartFile part(folder_.path(), TenBytes(), kCommit);
  EXPECT_GE(part.BytesToAllocate(), 10);
  part.Allocate();
  EXPECT_EQ(std::filesystem::file_size(Part()), 10u);
  part.Write(5, "56789");
  EXPECT_THAT(part.Missing(), ElementsAre(ByteRange{0, 5}));
  part.Write(0, "01234");
  EXPECT_THAT(part.Missing(), IsEmpty());
  part.SaveState();
  part.Publish();
  EXPECT_EQ(ReadFile(folder_.File("model.safetensors")), "0123456789");
  EXPECT_FALSE(std::filesystem::exists(Part()));
  EXPECT_FALSE(std::filesystem::exists(State()));
}

TEST_F(PartFileTest, TakesUpTheSavedState) {
  LeaveHalf(TenBytes());
  PartFile part(folder_.path(), TenBytes(), std::string(40, 'd'));
  EXPECT_EQ(part.CoveredBytes(), 5);
  EXPECT_THAT(part.Missing(), ElementsAre(ByteRange{5, 10}));
  part.Write(5, "56789");
  EXPECT_EQ(ReadFile(Part()), "0123456789");
}

TEST_F(PartFileTest, DropsTheStateOfAnotherFile) {
  LeaveHalf(TenBytes());
  EXPECT_EQ(PartFile(folder_.path(), TenBytes('b'), kCommit).CoveredBytes(), 0);
  LeaveHalf(TenBytes());
  RemoteFile longer = TenBytes();
  longer.size = 11;
  EXPECT_EQ(PartFile(folder_.path(), longer, kCommit).CoveredBytes(), 0);
}

TEST_F(PartFileTest, WithoutAHashTheCommitDecides) {
  const RemoteFile file{"model.safetensors", 10, "", ""};
  LeaveHalf(file);
  EXPECT_EQ(PartFile(folder_.path(), file, kCommit).CoveredBytes(), 5);
  EXPECT_EQ(PartFile(folder_.path(), file, std::string(40, 'd')).CoveredBytes(), 0);
}

TEST_F(PartFileTest, DropsABrokenState) {
  const std::string hash(64, 'a');
  for (const std::string& ranges : {std::string("[[0,11]]"), std::string("[[-1,5]]"), std::string("[[0]]"),
                                    std::string("7"), std::string("[[\"a\",1]]"), std::string("[[0,5]")}) {
    LeaveHalf(TenBytes());
    WriteText(State(), R"({"etag":")" + hash + R"(","size":10,"finished":)" + ranges + "}");
    EXPECT_EQ(PartFile(folder_.path(), TenBytes(), kCommit).CoveredBytes(), 0) << ranges;
  }
  LeaveHalf(TenBytes());
  WriteText(Part(), "0123");
  EXPECT_EQ(PartFile(folder_.path(), TenBytes(), kCommit).CoveredBytes(), 0);
}

TEST_F(PartFileTest, ResetForgetsAndDeleteRemoves) {
  LeaveHalf(TenBytes());
  PartFile part(folder_.path(), TenBytes(), kCommit);
  part.Reset();
  EXPECT_EQ(part.CoveredBytes(), 0);
  EXPECT_FALSE(std::filesystem::exists(State()));
  part.SaveState();
  part.Delete();
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(PartFileTest, RefusesMoreThanTheFileSystemHolds) {
  RemoteFile huge = TenBytes();
  huge.size = INT64_MAX - 4096;
  PartFile part(folder_.path(), huge, kCommit);
  ExpectError(ErrorKind::kOutOfMemory, [&] { part.Allocate(); });
}

}  // namespace
}  // namespace lapidary
