#include "server/http_checks.h"

#include <gtest/gtest.h>

#include <boost/asio/error.hpp>
#include <boost/beast/http/error.hpp>

namespace lapidary {
namespace {

namespace http = boost::beast::http;

http::request_header<> Header(std::initializer_list<std::pair<const char*, const char*>> fields,
                              unsigned version = 11) {
  http::request_header<> header;
  header.version(version);
  header.method(http::verb::post);
  header.target("/v1/models");
  for (const auto& [name, value] : fields) header.insert(name, value);
  return header;
}

int StatusOf(const http::request_header<>& header) {
  const std::optional<HttpRefusal> refusal = CheckHeader(header);
  return refusal ? refusal->status : 200;
}

TEST(HttpChecks, TakesPlainRequests) {
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Content-Length", "5"}})), 200);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Transfer-Encoding", "Chunked"}})), 200);
  EXPECT_EQ(StatusOf(Header({{"Host", "[::1]:8080"}})), 200);
  EXPECT_EQ(StatusOf(Header({}, 10)), 200);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Expect", "100-continue"}})), 200);
}

TEST(HttpChecks, RefusesWhatAnotherServerCouldReadOtherwise) {
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Content-Length", "5"}, {"Content-Length", "5"}})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Content-Length", "5, 5"}})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Content-Length", "+5"}})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Content-Length", ""}})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Content-Length", "99999999999999999999"}})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Transfer-Encoding", "identity"}})), 501);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Transfer-Encoding", "gzip, chunked"}})), 501);
  EXPECT_EQ(StatusOf(Header({{"Transfer-Encoding", "chunked"}}, 10)), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Host", "y"}})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x Transfer-Encoding: chunked"}})), 400);  // a folded line
  EXPECT_EQ(StatusOf(Header({{"Host", ""}})), 400);
  EXPECT_EQ(StatusOf(Header({})), 400);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}}, 20)), 505);
  EXPECT_EQ(StatusOf(Header({{"Host", "x"}, {"Expect", "magic"}})), 417);
  for (const char* target : {"http://evil/", "*", "x", "/a b", "/a\\b", "/a#b", "/\x7f"}) {
    http::request_header<> header = Header({{"Host", "x"}});
    header.target(target);
    EXPECT_EQ(StatusOf(header), 400) << target;
  }
}

TEST(HttpChecks, TellsLimitsAndMalformedInputButNotBrokenConnections) {
  EXPECT_EQ(RefusalOf(http::error::body_limit)->status, 413);
  EXPECT_EQ(RefusalOf(http::error::header_limit)->status, 431);
  EXPECT_EQ(RefusalOf(http::error::bad_field)->status, 400);
  EXPECT_FALSE(RefusalOf(http::error::end_of_stream));
  EXPECT_FALSE(RefusalOf(boost::asio::error::connection_reset));
}

}  // namespace
}  // namespace lapidary
