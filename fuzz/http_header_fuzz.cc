#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/http_checks.h"

namespace http = boost::beast::http;

// Any bytes: a request whose header holds what the server relies on, or a refusal.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(4096);
  parser.body_limit(4096);
  parser.eager(true);
  boost::beast::error_code error;
  size_t used = 0;
  while (used < size && !parser.is_done() && !error) {
    const size_t count = parser.put(boost::asio::buffer(data + used, size - used), error);
    if (count == 0) break;
    used += count;
  }
  if (error) {
    const auto refusal = lapidary::RefusalOf(error);
    if (refusal && (refusal->status < 400 || refusal->message.empty())) std::abort();
    return 0;
  }
  if (!parser.is_header_done()) return 0;
  if (lapidary::CheckHeader(parser.get())) return 0;
  const auto& header = parser.get();
  if (header.count(http::field::content_length) + header.count(http::field::transfer_encoding) > 1) std::abort();
  if (header.target().empty() || header.target()[0] != '/') std::abort();
  if (header.body().size() > 4096) std::abort();
  return 0;
}
