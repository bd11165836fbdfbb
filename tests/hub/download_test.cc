#include "hub/download.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <memory>

#include "base/mapped_file.h"
#include "expect_error.h"
#include "hub/folder_lock.h"
#include "hub_server.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kRangeBytes = 64 << 10;

class PullTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HubServer::IsAvailable()) GTEST_SKIP() << "no python3";
  }

  void Serve(const std::string& config = "{}") {
    hub_ = std::make_unique<HubServer>(config);
    for (const auto& [name, content] : files_) WriteText(hub_->root() + "/" + name, content);
    WriteText(hub_->root() + "/README.md", "not wanted");
    options_.endpoint = hub_->endpoint() + "/";
    options_.repository = "owner/model";
    options_.folder = folder_.File("model");
    options_.range_bytes = kRangeBytes;
    options_.connections = 4;
    options_.first_wait_ms = 1;
    options_.retries = 2;
    options_.stall_seconds = 5;
  }

  void ExpectComplete() {
    size_t found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
      const auto file = files_.find(entry.path().filename().string());
      ASSERT_NE(file, files_.end()) << entry.path();
      EXPECT_TRUE(ReadFile(entry.path().string()) == file->second) << entry.path();
      ++found;
    }
    EXPECT_EQ(found, files_.size());
  }

  std::string Target(const std::string& name) const { return options_.folder + "/" + name; }

  TempFolder folder_;
  const std::map<std::string, std::string> files_ = {{"config.json", "{\"a\": 1}"},
                                                     {"chat_template.jinja", ""},
                                                     {"tokenizer.json", Noise(150'000, 3)},
                                                     {"model-00001-of-00002.safetensors", Noise(1'000'000, 1)},
                                                     {"model-00002-of-00002.safetensors", Noise(kRangeBytes, 2)},
                                                     {"model.safetensors.index.json", "{}"}};
  const std::string shard_ = "model-00001-of-00002.safetensors";
  std::unique_ptr<HubServer> hub_;
  PullOptions options_;
};

TEST_F(PullTest, FetchesTheWantedFilesOnce) {
  Serve(
      R"({"page_size": 2, "token": "secret", "faults": [{"on": "model-00001-of-00002.safetensors", "mode": "redirect", "to": "cdn"}]})");
  options_.token = "secret";
  uint64_t total = 0;
  for (const auto& [name, content] : files_) total += content.size();
  uint64_t last = 0;
  Pull(options_, [&](std::string_view stage, uint64_t done, uint64_t of) {
    if (stage != "downloading") return;
    EXPECT_EQ(of, total);
    EXPECT_GE(done, last);
    EXPECT_LE(done, of);
    last = done;
  });
  EXPECT_EQ(last, total);
  ExpectComplete();
  for (const Json& entry : hub_->Log()) {
    EXPECT_EQ(entry["authorization"], entry["cdn"] == true ? "" : "Bearer secret") << entry;
  }
  EXPECT_EQ(hub_->LogOf("/cdn/").size(), 16u);

  const size_t fetched = hub_->LogOf("/resolve/").size();
  uint64_t checked = 0;
  Pull(options_, [&](std::string_view stage, uint64_t, uint64_t of) {
    if (stage == "checking") checked = of;
  });
  EXPECT_EQ(hub_->LogOf("/resolve/").size(), fetched);
  EXPECT_EQ(checked, total);
  ExpectComplete();
}

TEST_F(PullTest, ReplacesAFileOfOtherContent) {
  Serve();
  Pull(options_, nullptr);
  WriteText(Target("config.json"), "{\"a\": 2}");
  std::filesystem::remove(Target("tokenizer.json"));
  const size_t before = hub_->LogOf("/resolve/").size();
  Pull(options_, nullptr);
  EXPECT_EQ(hub_->LogOf("/resolve/").size(), before + 4);  // config.json, and tokenizer.json in three ranges
  ExpectComplete();
}

// Eight ranges of the shard arrive, then both connections hang, so that the cancel finds it unfinished on any machine.
TEST_F(PullTest, CancelledDownloadIsResumed) {
  Serve(
      R"({"faults": [{"on": "model-00001-of-00002.safetensors", "mode": "slow", "seconds": 0, "times": 8}, {"on": "model-00001-of-00002.safetensors", "mode": "stall", "bytes": 0, "seconds": 60, "times": 2}]})");
  options_.connections = 2;
  const uint64_t enough = 8 * kRangeBytes;
  const std::string text = ExpectError(ErrorKind::kCancelled, [&] {
    Pull(options_, [&](std::string_view stage, uint64_t done, uint64_t) {
      // Not before both hang: what is left of the faults would meet the second try.
      if (stage == "downloading" && done >= enough && hub_->LogOf("/" + shard_).size() >= 10)
        Throw(ErrorKind::kCancelled, "interrupted");
    });
  });
  EXPECT_EQ(text, "interrupted");
  EXPECT_FALSE(std::filesystem::exists(Target(shard_)));
  const Json state = Json::parse(ReadFile(Target(shard_ + ".part.json")));
  EXPECT_EQ(state["size"], 1'000'000);
  uint64_t kept = 0;
  for (const Json& range : state["finished"]) kept += range[1].get<uint64_t>() - range[0].get<uint64_t>();
  EXPECT_GE(kept, kRangeBytes);

  const size_t before = hub_->LogOf("/" + shard_).size();
  uint64_t first = 0;
  Pull(options_, [&](std::string_view stage, uint64_t done, uint64_t) {
    if (stage == "downloading" && first == 0) first = done;
  });
  EXPECT_GE(first, kept);
  EXPECT_LE(hub_->LogOf("/" + shard_).size() - before, 16 - kept / kRangeBytes);
  ExpectComplete();
}

TEST_F(PullTest, FailedDownloadIsResumed) {
  Serve(
      R"({"faults": [{"on": "model-00001-of-00002.safetensors", "mode": "slow", "seconds": 0, "times": 6}, {"on": "model-00001-of-00002.safetensors", "mode": "status", "status": 503, "times": 12}]})");
  options_.connections = 1;
  ExpectError(ErrorKind::kDevice, [&] { Pull(options_, nullptr); });
  const Json state = Json::parse(ReadFile(Target(shard_ + ".part.json")));
  EXPECT_EQ(state["finished"], Json::parse("[[0,393216]]"));
  for (int i = 0; i < 3; ++i) ExpectError(ErrorKind::kDevice, [&] { Pull(options_, nullptr); });
  Pull(options_, nullptr);
  ExpectComplete();
}

TEST_F(PullTest, TokenIsAskedFor) {
  Serve(R"({"token": "secret"})");
  const std::string text = ExpectError(ErrorKind::kInvalidArgument, [&] { Pull(options_, nullptr); });
  EXPECT_THAT(text, HasSubstr("owner/model at main"));
  EXPECT_THAT(text, HasSubstr("401 (Access is restricted)"));
  EXPECT_THAT(text, HasSubstr("HF_TOKEN"));
  options_.token = "wrong";
  EXPECT_THAT(ExpectError(ErrorKind::kInvalidArgument, [&] { Pull(options_, nullptr); }), HasSubstr("for this token"));
}

TEST_F(PullTest, UnknownRepositoryAndRevision) {
  Serve();
  options_.revision = "v9";
  EXPECT_THAT(ExpectError(ErrorKind::kNotFound, [&] { Pull(options_, nullptr); }), HasSubstr("owner/model at v9"));
  options_.repository = "owner/other";
  EXPECT_THAT(ExpectError(ErrorKind::kNotFound, [&] { Pull(options_, nullptr); }), HasSubstr("owner/other at v9"));
}

TEST_F(PullTest, NoSpaceIsKnownBefore) {
  Serve(R"({"extra": [{"type": "file", "path": "huge.safetensors", "size": 1152921504606846976}]})");
  const std::string text = ExpectError(ErrorKind::kOutOfMemory, [&] { Pull(options_, nullptr); });
  EXPECT_THAT(text, HasSubstr("bytes available, wanted 11529215"));
  EXPECT_TRUE(hub_->LogOf("/resolve/").empty());
  EXPECT_TRUE(std::filesystem::is_empty(options_.folder));
}

TEST_F(PullTest, AbsurdSizes) {
  std::string extra;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    extra += std::string(extra.empty() ? "" : ", ") + R"({"type": "file", "path": ")" + name +
             R"(.safetensors", "size": 9223372036854775807})";
  }
  Serve(R"({"extra": [)" + extra + "]}");
  ExpectError(ErrorKind::kCorruptFile, [&] { Pull(options_, nullptr); });
}

TEST_F(PullTest, OneDownloadAtATimeInAFolder) {
  Serve();
  {
    const FolderLock other(options_.folder);
    ExpectError(ErrorKind::kInvalidArgument, [&] { Pull(options_, nullptr); });
  }
  EXPECT_TRUE(hub_->Log().empty());
}

TEST_F(PullTest, HubThatIsNotThereIsAskedOnce) {
  Serve();
  for (const char* endpoint : {"http://127.0.0.1:1", "http://hub.invalid"}) {
    options_.endpoint = endpoint;
    const std::string text = ExpectError(ErrorKind::kDevice, [&] { Pull(options_, nullptr); });
    EXPECT_THAT(text, HasSubstr("cannot read owner/model at main: " + options_.endpoint));
    EXPECT_THAT(text, Not(HasSubstr("retries")));
    EXPECT_FALSE(std::filesystem::exists(options_.folder));
  }
}

TEST_F(PullTest, FolderIsMadeOnlyOnceTheListingIsThere) {
  Serve(
      R"({"faults": [{"on": "@revision", "mode": "status", "status": 503, "times": 3}, {"on": "@tree", "mode": "status", "status": 404, "times": 1}]})");
  options_.folder = folder_.File("new/model");
  EXPECT_THAT(ExpectError(ErrorKind::kDevice, [&] { Pull(options_, nullptr); }), HasSubstr("gave up after 2 retries"));
  EXPECT_FALSE(std::filesystem::exists(folder_.File("new")));
  ExpectError(ErrorKind::kNotFound, [&] { Pull(options_, nullptr); });
  EXPECT_FALSE(std::filesystem::exists(folder_.File("new")));
  Pull(options_, nullptr);
  ExpectComplete();
}

TEST_F(PullTest, FolderThatWasThereStays) {
  Serve();
  std::filesystem::create_directory(options_.folder);
  options_.revision = "v9";
  ExpectError(ErrorKind::kNotFound, [&] { Pull(options_, nullptr); });
  EXPECT_TRUE(std::filesystem::is_empty(options_.folder));
}

TEST(PullOptionsTest, ValuesOutsideWhatIsAllowed) {
  const TempFolder folder;
  const auto refuse = [&](auto change) {
    PullOptions options;
    options.repository = "owner/model";
    options.folder = folder.File("model");
    options.endpoint = "http://127.0.0.1:1";
    change(options);
    ExpectError(ErrorKind::kInvalidArgument, [&] { Pull(options, nullptr); });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  };
  refuse([](PullOptions& options) { options.repository = "../model"; });
  refuse([](PullOptions& options) { options.revision = ""; });
  refuse([](PullOptions& options) { options.folder = ""; });
  refuse([](PullOptions& options) { options.endpoint = "ftp://hub"; });
  refuse([](PullOptions& options) { options.token = "a\r\nX-Evil: 1"; });
  refuse([](PullOptions& options) { options.connections = 0; });
  refuse([](PullOptions& options) { options.range_bytes = 1; });
  refuse([](PullOptions& options) { options.retries = -1; });
  refuse([](PullOptions& options) { options.stall_seconds = 0; });
  refuse([](PullOptions& options) { options.first_wait_ms = 0; });
}

}  // namespace
}  // namespace lapidary
