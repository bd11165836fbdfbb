#include "hub/http.h"

#include <gmock/gmock.h>

#include "expect_error.h"
#include "hub_server.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

class HttpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HubServer::IsAvailable()) GTEST_SKIP() << "no python3";
  }

  HttpHead Get(const HubServer& hub, std::optional<ByteRange> range = std::nullopt, int stall_seconds = 5) {
    HttpClient client({hub.endpoint(), "secret", stall_seconds}, stop_);
    body_.clear();
    return client.Get(hub.endpoint() + kFile, range, [&](const HttpHead&, std::string_view piece) { body_ += piece; });
  }

  // A config in which this fault befalls the one file.
  static std::string Fault(const std::string& text) {
    Json fault = Json::parse(text);
    fault["on"] = "model.safetensors";
    return R"({"faults": [)" + fault.dump() + "]}";
  }

  static constexpr const char* kFile =
      "/owner/model/resolve/0123456789abcdef0123456789abcdef01234567/model.safetensors";
  StopFlag stop_;
  std::string body_;
};

TEST_F(HttpTest, GetsWholeFilesAndRanges) {
  const HubServer hub;
  WriteText(hub.root() + "/model.safetensors", "0123456789");
  EXPECT_EQ(Get(hub).status, 200);
  EXPECT_EQ(body_, "0123456789");
  const HttpHead head = Get(hub, ByteRange{2, 5});
  EXPECT_EQ(head.status, 206);
  EXPECT_EQ(head.Field("content-range"), "bytes 2-4/10");
  EXPECT_EQ(body_, "234");
}

TEST_F(HttpTest, TokenStaysWithTheEndpoint) {
  const HubServer hub(Fault(R"({"mode": "redirect", "to": "cdn"})"));
  WriteText(hub.root() + "/model.safetensors", "0123456789");
  const HttpHead head = Get(hub, ByteRange{2, 5});
  EXPECT_EQ(head.status, 206);
  EXPECT_FALSE(head.from_endpoint);
  EXPECT_EQ(body_, "234");
  const auto log = hub.Log();
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[0]["authorization"], "Bearer secret");
  EXPECT_EQ(log[1]["cdn"], true);
  EXPECT_EQ(log[1]["range"], "bytes=2-4");
  EXPECT_EQ(log[1]["authorization"], "");
}

TEST_F(HttpTest, RefusesBadRedirects) {
  const HubServer loop(Fault(R"({"mode": "redirect", "to": "loop"})"));
  WriteText(loop.root() + "/model.safetensors", "x");
  EXPECT_THAT(ExpectError(ErrorKind::kDevice, [&] { Get(loop); }), HasSubstr("10 redirects"));
  EXPECT_EQ(loop.Log().size(), 11u);
  const HubServer file(Fault(R"({"mode": "redirect", "to": "file:///etc/passwd"})"));
  WriteText(file.root() + "/model.safetensors", "x");
  ExpectError(ErrorKind::kCorruptFile, [&] { Get(file); });
  EXPECT_EQ(body_, "");
}

TEST_F(HttpTest, NoDowngradeFromHttps) {
  HttpClient client({"https://127.0.0.1:1", "secret", 5}, stop_);
  const std::string text = ExpectError(ErrorKind::kCorruptFile, [&] {
    client.Get("http://127.0.0.1:1/x", std::nullopt, [](const HttpHead&, std::string_view) {});
  });
  EXPECT_THAT(text, HasSubstr("from https to http"));
}

TEST_F(HttpTest, BrokenConnectionsAreTransient) {
  const HubServer cut(Fault(R"({"mode": "cut", "bytes": 4})"));
  WriteText(cut.root() + "/model.safetensors", "0123456789");
  EXPECT_THROW(Get(cut), TransientFailure);
  EXPECT_EQ(body_, "0123");
  const HubServer reset(Fault(R"({"mode": "reset"})"));
  WriteText(reset.root() + "/model.safetensors", "0123456789");
  EXPECT_THROW(Get(reset), TransientFailure);
  HttpClient nobody({"http://127.0.0.1:1", "", 5}, stop_);
  EXPECT_THROW(nobody.Get("http://127.0.0.1:1/", std::nullopt, [](const HttpHead&, std::string_view) {}),
               TransientFailure);
}

TEST_F(HttpTest, SilenceIsTransient) {
  const HubServer hub(Fault(R"({"mode": "stall", "bytes": 4, "seconds": 60})"));
  WriteText(hub.root() + "/model.safetensors", "0123456789");
  try {
    Get(hub, std::nullopt, 1);
    FAIL() << "no failure";
  } catch (const TransientFailure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("no byte for 1 s"));
  }
  EXPECT_EQ(body_, "0123");
}

TEST_F(HttpTest, WhatTheSinkThrowsEndsTheTransfer) {
  const HubServer hub;
  WriteText(hub.root() + "/model.safetensors", "0123456789");
  HttpClient client({hub.endpoint(), "", 5}, stop_);
  const auto sink = [](const HttpHead&, std::string_view) { Throw(ErrorKind::kOutOfMemory, "disk full"); };
  EXPECT_EQ(ExpectError(ErrorKind::kOutOfMemory, [&] { client.Get(hub.endpoint() + kFile, std::nullopt, sink); }),
            "disk full");
}

TEST_F(HttpTest, RetryAfterIsRead) {
  const HubServer hub(Fault(R"({"mode": "status", "status": 429, "retry_after": 7})"));
  WriteText(hub.root() + "/model.safetensors", "x");
  const HttpHead head = Get(hub);
  EXPECT_EQ(head.status, 429);
  EXPECT_EQ(body_, "");
  try {
    CheckStatus(head, "x", false);
    FAIL() << "no failure";
  } catch (const TransientFailure& failure) {
    EXPECT_EQ(failure.retry_after_seconds(), 7);
  }
}

TEST(HttpStatus, KindsOfRefusal) {
  const auto check = [](long status, bool from_endpoint = true) {
    HttpHead head;
    head.status = status;
    head.from_endpoint = from_endpoint;
    head.fields["x-error-message"] = "see\nthis";
    CheckStatus(head, "cannot read a/b", false);
  };
  check(200);
  check(206);
  EXPECT_THAT(ExpectError(ErrorKind::kInvalidArgument, [&] { check(401); }), HasSubstr("HF_TOKEN"));
  ExpectError(ErrorKind::kInvalidArgument, [&] { check(403); });
  EXPECT_EQ(ExpectError(ErrorKind::kNotFound, [&] { check(404); }), "cannot read a/b: the hub answered 404 (see?this)");
  ExpectError(ErrorKind::kDevice, [&] { check(400); });
  ExpectError(ErrorKind::kDevice, [&] { check(302); });
  for (const long status : {408, 429, 500, 503}) EXPECT_THROW(check(status), TransientFailure);
  EXPECT_THROW(check(403, false), TransientFailure);
}

}  // namespace
}  // namespace lapidary
