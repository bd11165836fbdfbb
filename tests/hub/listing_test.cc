#include "hub/listing.h"

#include <gmock/gmock.h>

#include "expect_error.h"
#include "hub_server.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<RemoteFile> Parse(const std::string& page) {
  std::vector<RemoteFile> files;
  AddWantedFiles(ParseJson(page, "page"), "cannot list owner/model at main", files);
  return files;
}

std::string Entry(const std::string& path, const std::string& more) {
  return R"([{"type":"file","path":")" + path + R"(",)" + more + "}]";
}

TEST(Listing, WantsWhatAModelFolderNeeds) {
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
        "model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    EXPECT_TRUE(IsWanted(name)) << name;
  }
  for (const char* name :
       {"README.md", "onnx/config.json", "pytorch_model.bin", "x.safetensors.part", ".gitattributes"}) {
    EXPECT_FALSE(IsWanted(name)) << name;
  }
}

TEST(Listing, ReadsHashesOfBothKinds) {
  const std::string sha256(64, 'a'), git(40, 'b');
  const auto lfs = Parse(Entry("model.safetensors", R"("size":7,"oid":")" + git + R"(","lfs":{"oid":")" + sha256 +
                                                        R"(","size":7,"pointerSize":134})"));
  ASSERT_EQ(lfs.size(), 1u);
  EXPECT_EQ(lfs[0].size, 7);
  EXPECT_EQ(lfs[0].sha256, sha256);
  EXPECT_EQ(lfs[0].etag(), sha256);
  const auto small = Parse(Entry("config.json", R"("size":7,"oid":")" + git + "\""));
  ASSERT_EQ(small.size(), 1u);
  EXPECT_EQ(small[0].etag(), git);
  EXPECT_EQ(Parse(Entry("config.json", R"("size":0)")).at(0).etag(), "");
}

TEST(Listing, SkipsFoldersAndWhatLiesInThem) {
  EXPECT_TRUE(
      Parse(R"([{"type":"directory","path":"onnx","size":0},{"type":"file","path":"onnx/config.json","size":1}])")
          .empty());
}

TEST(Listing, RefusesUnsafePaths) {
  for (const char* path : {"/etc/x.safetensors", "../x.safetensors", "a/../x.safetensors", "a//b", "./config.json",
                           "..", "a\\\\b.safetensors", "x\\n.safetensors", "x\\u0000.safetensors", ""}) {
    ExpectError(ErrorKind::kCorruptFile, [&] { Parse(Entry(path, R"("size":1)")); });
  }
  ExpectError(ErrorKind::kCorruptFile, [&] { Parse(Entry(std::string(300, 'a') + ".safetensors", R"("size":1)")); });
}

TEST(Listing, RefusesOtherForms) {
  for (const char* page :
       {"{}", "7", "[7]", R"([{"path":"a"}])", R"([{"type":"file"}])", R"([{"type":1,"path":"config.json"}])"}) {
    ExpectError(ErrorKind::kCorruptFile, [&] { Parse(page); });
  }
  for (const char* more : {R"("size":-1)", R"("size":1.5)", R"("size":"1")", R"("size":18446744073709551615)",
                           R"("x":1)", R"("size":1,"lfs":{"oid":"abc","size":1})", R"("size":1,"lfs":{"size":1})"}) {
    ExpectError(ErrorKind::kCorruptFile, [&] { Parse(Entry("config.json", more)); });
  }
  const std::string lfs = R"("lfs":{"oid":")" + std::string(64, 'a') + R"(","size":2})";
  EXPECT_THAT(ExpectError(ErrorKind::kCorruptFile, [&] { Parse(Entry("config.json", R"("size":1,)" + lfs)); }),
              HasSubstr("two sizes, 1 and 2"));
  ExpectError(ErrorKind::kCorruptFile, [&] {
    Parse(R"([{"type":"file","path":"config.json","size":1},{"type":"file","path":"config.json","size":1}])");
  });
}

TEST(Listing, FileUrlIsEncoded) {
  EXPECT_EQ(FileUrl({"http://h", "owner/model", "abc"}, "a b.safetensors"),
            "http://h/owner/model/resolve/abc/a%20b.safetensors");
}

class ListingServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HubServer::IsAvailable()) GTEST_SKIP() << "no python3";
  }

  std::vector<RemoteFile> List(const HubServer& hub, const std::string& token = "") {
    HttpClient client({hub.endpoint(), token, 5}, stop_);
    Listing listing(client, {.retries = 2, .first_wait = std::chrono::milliseconds(1)}, stop_, !token.empty());
    HubAddress address{hub.endpoint(), "owner/model", "main"};
    address.revision = listing.ResolveCommit(address);
    return listing.WantedFiles(address);
  }

  StopFlag stop_;
};

TEST_F(ListingServerTest, FollowsPages) {
  const HubServer hub(R"({"page_size": 1, "token": "secret"})");
  for (const char* name : {"README.md", "config.json", "model.safetensors", "tokenizer.json"}) {
    WriteText(hub.root() + "/" + name, name);
  }
  std::vector<std::string> names;
  for (const RemoteFile& file : List(hub, "secret")) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_EQ(hub.LogOf("/tree/").size(), 4u);
}

TEST_F(ListingServerTest, MissingFilesAreNamed) {
  const HubServer hub;
  EXPECT_THAT(ExpectError(ErrorKind::kNotFound, [&] { List(hub); }), HasSubstr("found no config.json"));
  WriteText(hub.root() + "/config.json", "{}");
  EXPECT_THAT(ExpectError(ErrorKind::kNotFound, [&] { List(hub); }), HasSubstr("found no *.safetensors"));
}

TEST_F(ListingServerTest, StrangeAnswers) {
  const std::vector<std::pair<std::string, std::string>> answers = {{"@revision", "<html>"},
                                                                    {"@revision", "[]"},
                                                                    {"@revision", R"({"sha": "../../x"})"},
                                                                    {"@revision", R"({"sha": 7})"},
                                                                    {"@tree", std::string(10'000, '[')},
                                                                    {"@tree", std::string(17 << 20, ' ')}};
  Json faults = Json::array();
  for (const auto& [on, body] : answers) {
    faults.push_back({{"on", on}, {"mode", "raw"}, {"body", body}, {"times", 1}});
  }
  const HubServer hub(R"({"faults": )" + faults.dump() + "}");
  for (int i = 0; i < std::ssize(answers); ++i) ExpectError(ErrorKind::kCorruptFile, [&] { List(hub); });
}

TEST_F(ListingServerTest, BusyHubIsAskedAgain) {
  const HubServer hub(
      R"({"faults": [{"on": "@revision", "mode": "status", "status": 503, "times": 1}, {"on": "@tree", "mode": "reset", "times": 1}, {"on": "@tree", "mode": "raw", "body": "[]", "times": 1}]})");
  ExpectError(ErrorKind::kNotFound, [&] { List(hub); });
  EXPECT_EQ(hub.LogOf("/revision/").size(), 2u);
  EXPECT_EQ(hub.LogOf("/tree/").size(), 2u);
}

}  // namespace
}  // namespace lapidary
