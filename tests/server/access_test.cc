#include "server/access.h"

#include <gtest/gtest.h>

#include "expect_refusal.h"

namespace lapidary {
namespace {

HttpRequest WithKey(const std::string& authorization) {
  HttpRequest request;
  request.authorization = authorization;
  return request;
}

HttpRequest From(const std::string& origin, const std::string& host) {
  HttpRequest request;
  request.origin = origin;
  request.host = host;
  return request;
}

TEST(Access, OneOfTheKeysIsWanted) {
  ServerOptions options;
  Access(options).CheckKey(WithKey(""));
  options.api_keys = {"first", "second"};
  const Access access(options);
  access.CheckKey(WithKey("Bearer first"));
  access.CheckKey(WithKey("BEARER second"));
  for (const char* wrong :
       {"", "first", "Bearer", "Bearer ", "Bearer firs", "Bearer first ", "Basic first", "Bearer First"}) {
    ExpectRefusal(
        "", [&] { access.CheckKey(WithKey(wrong)); }, 401);
  }
}

TEST(Access, PagesOfOtherOriginsNeedLeave) {
  ServerOptions options;
  Access access(options);
  access.CheckOrigin(From("", "anything"));
  access.CheckOrigin(From("http://localhost:8080", "localhost:8080"));
  access.CheckOrigin(From("http://[::1]:8080", "[::1]:8080"));
  ExpectRefusal(
      "", [&] { access.CheckOrigin(From("http://page.example", "localhost:8080")); }, 403);
  ExpectRefusal(
      "", [&] { access.CheckOrigin(From("http://localhost:9", "localhost:8080")); }, 403);
  ExpectRefusal(
      "", [&] { access.CheckOrigin(From("null", "localhost:8080")); }, 403);
  // Another name for this machine.
  ExpectRefusal(
      "", [&] { access.CheckOrigin(From("http://evil.example", "evil.example")); }, 403);
  options.allowed_origins = {"http://page.example"};
  access = Access(options);
  access.CheckOrigin(From("http://page.example", "localhost:8080"));
  ExpectRefusal(
      "", [&] { access.CheckOrigin(From("http://page.example.evil", "localhost:8080")); }, 403);
  options.allowed_origins = {"*"};
  Access(options).CheckOrigin(From("http://any.example", "localhost:8080"));
  // Listening to all, a server has whatever name it is asked by.
  ServerOptions open;
  open.host = "0.0.0.0";
  Access(open).CheckOrigin(From("http://chat.example", "chat.example"));
  ExpectRefusal(
      "", [&] { Access(open).CheckOrigin(From("http://page.example", "chat.example")); }, 403);
}

}  // namespace
}  // namespace lapidary
