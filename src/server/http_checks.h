#pragma once

#include <boost/beast/core/error.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>

namespace lapidary {

struct HttpRefusal {
  int status = 400;
  std::string message;
};

// Why a request's header is not served, beyond what the parser refuses: anything that another server on the way could
// read as another request (two lengths, codings besides chunked, folded or doubled Host), a missing Host, a target that
// is not a path.
std::optional<HttpRefusal> CheckHeader(const boost::beast::http::request_header<>& header);

// What a failure of the parser means to the client; nothing when there is nobody to tell.
std::optional<HttpRefusal> RefusalOf(const boost::beast::error_code& error);

}  // namespace lapidary
