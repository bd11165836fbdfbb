#include "hub/downloader.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "expect_error.h"
#include "hub_server.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRangeBytes = 64 << 10;
const std::string kName = "model.safetensors";

// One file of ten ranges and a bit, fetched by four threads.
class DownloaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HubServer::IsAvailable()) GTEST_SKIP() << "no python3";
  }

  // `text` is a list of faults of the one file.
  void Serve(const std::string& text = "[]") {
    Json faults = Json::parse(text);
    for (Json& fault : faults) fault["on"] = kName;
    hub_ = std::make_unique<HubServer>(R"({"faults": )" + faults.dump() + "}");
    WriteText(hub_->root() + "/" + kName, content_);
  }

  void Fetch(int retries = 3) {
    StopFlag stop;
    const HubAddress address{hub_->endpoint(), "owner/model", "main"};
    HttpClient client({hub_->endpoint(), "", 1}, stop);
    const RetryOptions retry{retries, std::chrono::milliseconds(1)};
    Listing listing(client, retry, stop, false);
    const std::string commit = listing.ResolveCommit(address);
    StatedFile(listing, {address.endpoint, address.repository, commit});
    std::vector<std::unique_ptr<PartFile>> parts;
    parts.push_back(std::make_unique<PartFile>(folder_.path(), file_, commit));
    parts[0]->Allocate();
    Downloader downloader({{hub_->endpoint(), "owner/model", commit}, {hub_->endpoint(), "", 1}, retry, kRangeBytes},
                          parts, stop);
    RunWorkers(
        4, stop, [&] { downloader.Work(); }, [] {});
    EXPECT_EQ(downloader.ReceivedBytes(), content_.size());
    EXPECT_EQ(downloader.VerifiedBytes(), content_.size());
  }

  void StatedFile(Listing& listing, const HubAddress& address) {
    WriteText(hub_->root() + "/config.json", "{}");
    for (const RemoteFile& file : listing.WantedFiles(address)) {
      if (file.name == kName) file_ = file;
    }
  }

  void ExpectComplete() {
    EXPECT_TRUE(ReadFile(folder_.File(kName)) == content_);
    EXPECT_FALSE(std::filesystem::exists(folder_.File(kName + ".part")));
    EXPECT_FALSE(std::filesystem::exists(folder_.File(kName + ".part.json")));
  }

  TempFolder folder_;
  const std::string content_ = Noise(10 * kRangeBytes + 123, 1);
  std::unique_ptr<HubServer> hub_;
  RemoteFile file_;
};

TEST_F(DownloaderTest, FetchesRangesOnce) {
  Serve(R"([])");
  Fetch();
  ExpectComplete();
  std::vector<std::string> ranges;
  for (const Json& entry : hub_->LogOf("/resolve/")) ranges.push_back(entry["range"]);
  std::ranges::sort(ranges);
  EXPECT_EQ(ranges.size(), 11u);
  EXPECT_EQ(std::ranges::unique(ranges).size(), 0u);
}

TEST_F(DownloaderTest, SurvivesFailuresOfAllSorts) {
  Serve(
      R"([{"mode": "status", "status": 500, "times": 2}, {"mode": "cut", "bytes": 1000, "times": 2}, {"mode": "reset", "times": 1}, {"mode": "status", "status": 429, "times": 1}, {"mode": "stall", "bytes": 30000, "seconds": 60, "times": 1}])");
  Fetch(8);
  ExpectComplete();
}

TEST_F(DownloaderTest, GoesOnWhereABodyWasCut) {
  Serve(R"([{"mode": "cut", "bytes": 1000, "times": 1}])");
  Fetch();
  ExpectComplete();
  int continued = 0;
  for (const Json& entry : hub_->LogOf("/resolve/")) {
    const std::string range = entry["range"];
    const int64_t begin = std::stoll(range.substr(range.find('=') + 1));
    if (begin % kRangeBytes == 1000) ++continued;
  }
  EXPECT_EQ(continued, 1);
}

TEST_F(DownloaderTest, GivesUpAfterTheRetries) {
  Serve(R"([{"mode": "status", "status": 500, "message": "out of order"}])");
  const std::string text = ExpectError(ErrorKind::kDevice, [&] { Fetch(2); });
  EXPECT_THAT(text, HasSubstr(kName));
  EXPECT_THAT(text, HasSubstr("500 (out of order) (gave up after 2 retries)"));
}

TEST_F(DownloaderTest, ServerThatIgnoresRanges) {
  Serve(R"([{"mode": "ignore_range"}])");
  Fetch();
  ExpectComplete();
}

TEST_F(DownloaderTest, ServerThatIgnoresRangesAndCuts) {
  Serve(R"([{"mode": "ignore_range_cut", "bytes": 300000, "times": 5}, {"mode": "ignore_range"}])");
  Fetch(6);
  ExpectComplete();
}

TEST_F(DownloaderTest, ServerThatIgnoresRangesNowAndThen) {
  Serve(R"([{"mode": "slow", "seconds": 0.005, "times": 3}, {"mode": "ignore_range", "times": 1}])");
  Fetch();
  ExpectComplete();
}

TEST_F(DownloaderTest, WrongContentRange) {
  for (const char* value : {"bytes 1-65535/655483", "bytes 0-65535/655482", "x"}) {
    Serve(R"([{"mode": "content_range", "value": ")" + std::string(value) + "\"}]");
    EXPECT_THAT(ExpectError(ErrorKind::kCorruptFile, [&] { Fetch(); }), HasSubstr("found Content-Range"));
  }
}

TEST_F(DownloaderTest, OneWrongAnswerIsFetchedAgain) {
  Serve(R"([{"mode": "corrupt", "times": 11}])");
  Fetch();
  ExpectComplete();
  EXPECT_EQ(hub_->LogOf("/resolve/").size(), 22u);
}

TEST_F(DownloaderTest, WrongContentIsRefused) {
  Serve(R"([{"mode": "corrupt"}])");
  const std::string text = ExpectError(ErrorKind::kCorruptFile, [&] { Fetch(); });
  EXPECT_THAT(text, HasSubstr(kName));
  EXPECT_THAT(text, HasSubstr("found sha256"));
  EXPECT_THAT(text, HasSubstr("wanted " + file_.sha256));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(DownloaderTest, WrongLengthIsRefused) {
  for (const char* mode : {"longer", "shorter"}) {
    Serve(R"([{"mode": ")" + std::string(mode) + "\"}]");
    ExpectError(ErrorKind::kCorruptFile, [&] { Fetch(); });
    EXPECT_FALSE(std::filesystem::exists(folder_.File(kName)));
  }
}

TEST_F(DownloaderTest, FileThatIsGone) {
  Serve(R"([{"mode": "status", "status": 404}])");
  EXPECT_THAT(ExpectError(ErrorKind::kNotFound, [&] { Fetch(); }), HasSubstr(kName));
}

}  // namespace
}  // namespace lapidary
