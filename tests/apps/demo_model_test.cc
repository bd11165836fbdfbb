#include "demo_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lapidary {
namespace {

namespace fs = std::filesystem;

class DemoModelTest : public testing::Test {
 protected:
  void SetUp() override {
    prefix_ = fs::path(testing::TempDir()) / ("lapidary_demo_model_" + std::to_string(getpid()));
    fs::create_directories(prefix_ / "bin");
  }
  void TearDown() override { fs::remove_all(prefix_); }

  fs::path prefix_;
};

TEST_F(DemoModelTest, InstalledModelIsFoundBesideTheProgram) {
  const fs::path folder = prefix_ / "share/lapidary/models/demo";
  fs::create_directories(folder);
  EXPECT_EQ(FindDemoModel((prefix_ / "bin/lapidary").string(), "/source"), "/source") << "an empty folder is no model";
  std::ofstream(folder / "config.json") << "{}";
  EXPECT_EQ(FindDemoModel((prefix_ / "bin/lapidary").string(), "/source"), folder.string());
}

TEST_F(DemoModelTest, SourceTreeIsTakenOtherwise) {
  EXPECT_EQ(FindDemoModel((prefix_ / "bin/lapidary").string(), "/source"), "/source");
  EXPECT_EQ(FindDemoModel("", "/source"), "/source");
}

TEST_F(DemoModelTest, ThisProgramRunsFromTheBuildTree) {
  EXPECT_EQ(FindDemoModel(), LAPIDARY_SOURCE_DIR "/models/demo");
}

}  // namespace
}  // namespace lapidary
