#include "hub/url.h"

#include <gmock/gmock.h>

#include <cstdint>

#include "expect_error.h"

namespace lapidary {
namespace {

TEST(Url, OriginIsSchemeHostAndPort) {
  EXPECT_EQ(OriginOf("https://Hub.example/a"), OriginOf("https://hub.example:443/b?c"));
  EXPECT_FALSE(OriginOf("https://hub.example") == OriginOf("http://hub.example"));
  EXPECT_FALSE(OriginOf("http://hub.example") == OriginOf("http://hub.example:8080"));
  EXPECT_FALSE(OriginOf("https://hub.example") == OriginOf("https://hub.example.evil.test"));
  EXPECT_FALSE(OriginOf("https://hub.example") == OriginOf("https://hub.example@evil.test/"));
  for (const char* bad :
       {"", "hub.example/x y", "ftp://hub.example/", "file:///etc/passwd", "//hub.example", "http://"}) {
    EXPECT_FALSE(ParseOrigin(bad).has_value()) << bad;
    ExpectError(ErrorKind::kInvalidArgument, [&] { OriginOf(bad); });
  }
}

TEST(Url, ResolvesAbsoluteAndRelativeReferences) {
  EXPECT_EQ(ResolveUrl("http://a:1/x/y?z", "/api/models?q=1"), "http://a:1/api/models?q=1");
  EXPECT_EQ(ResolveUrl("http://a:1/x/y", "https://b/c?sig=%2F#frag"), "https://b/c?sig=%2F");
  EXPECT_EQ(ResolveUrl("https://a/x", "//b/c"), "https://b/c");
  EXPECT_EQ(ResolveUrl("https://a/x/y", "z"), "https://a/x/z");
}

TEST(Url, EncodesAllButUnreserved) {
  EXPECT_EQ(EncodeUrlPart("model-1.safetensors"), "model-1.safetensors");
  EXPECT_EQ(EncodeUrlPart("refs/pr/1 \xc3\xa9?"), "refs%2Fpr%2F1%20%C3%A9%3F");
}

TEST(Url, EndpointLosesTrailingSlashes) {
  EXPECT_EQ(CleanEndpoint("https://hub.example/"), "https://hub.example");
  EXPECT_EQ(CleanEndpoint("http://127.0.0.1:80/mirror//"), "http://127.0.0.1:80/mirror");
  for (const char* bad :
       {"hub", "ftp://hub", "https://user:secret@hub", "https://hub?x", "https://hub#x", "https://a b"}) {
    ExpectError(ErrorKind::kInvalidArgument, [&] { CleanEndpoint(bad); });
  }
}

TEST(Url, RepositoryIsOwnerAndName) {
  CheckRepository("google/gemma-4-E2B");
  for (const char* bad :
       {"", "gemma", "a/b/c", "/b", "a/", "../b", "a/..", "a/b?x", "a/b c", "a/.b", "-a/b", "a/b..c"}) {
    ExpectError(ErrorKind::kInvalidArgument, [&] { CheckRepository(bad); });
  }
}

TEST(Url, RevisionIsPrintable) {
  CheckRevision("main");
  CheckRevision("refs/pr/1");
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\nb"), std::string("../x"), std::string(300, 'a')}) {
    ExpectError(ErrorKind::kInvalidArgument, [&] { CheckRevision(bad); });
  }
}

TEST(Url, NextLinkPicksTheRelation) {
  EXPECT_EQ(NextLink("<http://a/x?c=1>; rel=\"next\""), "http://a/x?c=1");
  EXPECT_EQ(NextLink("<http://a/first>; rel=\"first\", <http://a/2>; rel=\"next\""), "http://a/2");
  EXPECT_EQ(NextLink("<http://a/first>; rel=\"first\""), std::nullopt);
  EXPECT_EQ(NextLink("<http://a/first"), std::nullopt);
  EXPECT_EQ(NextLink(">;<"), std::nullopt);
  EXPECT_EQ(NextLink(""), std::nullopt);
}

TEST(Url, ContentRange) {
  const auto range = ParseContentRange("bytes 5-9/100");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->range, (ByteRange{5, 10}));
  EXPECT_EQ(range->size, 100);
  for (const char* bad : {"", "bytes 5-9", "bytes */100", "bytes 9-5/100", "bytes 5-100/100", "items 5-9/100",
                          "bytes 5/9-100", "bytes -5-9/100", "bytes 5-99999999999999999999/100", "bytes 5-9/*"}) {
    EXPECT_FALSE(ParseContentRange(bad).has_value()) << bad;
  }
}

TEST(Url, SizeIsDigitsOnly) {
  EXPECT_EQ(ParseSize("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(ParseSize("0"), 0);
  for (const char* bad : {"", "-1", "+1", "1 ", "0x1", "9223372036854775808"})
    EXPECT_EQ(ParseSize(bad), std::nullopt) << bad;
}

TEST(Url, LowerHex) {
  EXPECT_TRUE(IsLowerHex("0af9", 4));
  EXPECT_FALSE(IsLowerHex("0af9", 5));
  EXPECT_FALSE(IsLowerHex("0AF9", 4));
  EXPECT_FALSE(IsLowerHex("0ag9", 4));
}

}  // namespace
}  // namespace lapidary
