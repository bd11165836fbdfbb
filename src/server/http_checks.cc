#include "server/http_checks.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>

namespace lapidary {
namespace {

namespace http = boost::beast::http;

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() < 19 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsPath(std::string_view target) {
  const auto plain = [](char c) { return c > 0x20 && c < 0x7f && c != '#' && c != '\\'; };
  return !target.empty() && target[0] == '/' && std::all_of(target.begin(), target.end(), plain);
}

// A name or an address, and a port. What a folded line leaves behind is none.
bool IsHost(std::string_view host) {
  constexpr std::string_view kOther = "-._~%!$&'()*+;=:[]";
  return !host.empty() && std::all_of(host.begin(), host.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOther.find(c) != std::string_view::npos;
  });
}

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::optional<HttpRefusal> CheckHeader(const http::request_header<>& header) {
  if (header.version() != 10 && header.version() != 11) return HttpRefusal{505, "HTTP version: wanted 1.0 or 1.1"};
  if (!IsPath(View(header.target()))) return HttpRefusal{400, "request target: wanted a path"};
  const auto lengths = header.count(http::field::content_length);
  const auto codings = header.count(http::field::transfer_encoding);
  if (lengths + codings > 1) return HttpRefusal{400, "body length: found it stated more than once"};
  if (lengths == 1 && !IsNumber(View(header[http::field::content_length]))) {
    return HttpRefusal{400, "Content-Length: wanted one number"};
  }
  if (codings == 1) {
    if (!boost::beast::iequals(header[http::field::transfer_encoding], "chunked")) {
      return HttpRefusal{501, "Transfer-Encoding: only chunked is supported"};
    }
    if (header.version() == 10) return HttpRefusal{400, "Transfer-Encoding: found it in HTTP/1.0"};
  }
  const auto hosts = header.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && header.version() == 11)) return HttpRefusal{400, "Host: wanted exactly one"};
  if (hosts == 1 && !IsHost(View(header[http::field::host]))) return HttpRefusal{400, "Host: wanted a name"};
  if (header.count(http::field::authorization) > 1) return HttpRefusal{400, "Authorization: wanted at most one"};
  const auto expect = header[http::field::expect];
  if (!expect.empty() && !boost::beast::iequals(expect, "100-continue")) {
    return HttpRefusal{417, "Expect: only 100-continue is supported"};
  }
  return std::nullopt;
}

std::optional<HttpRefusal> RefusalOf(const boost::beast::error_code& error) {
  if (error == http::error::body_limit) return HttpRefusal{413, "request body: too large"};
  if (error == http::error::header_limit) return HttpRefusal{431, "request header: too large"};
  if (error == http::error::end_of_stream || error == http::error::partial_message) return std::nullopt;
  if (error.category() == make_error_code(http::error::bad_method).category()) {
    return HttpRefusal{400, "malformed HTTP request: " + error.message()};
  }
  return std::nullopt;
}

}  // namespace lapidary
