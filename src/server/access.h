#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http_exchange.h"
#include "server/server_options.h"

namespace lapidary {

// Who may ask: API keys, and web pages by their origin.
class Access {
 public:
  explicit Access(const ServerOptions& options);

  // Throws ApiError 401 unless the request carries one of the keys as "Authorization: Bearer KEY". The time taken does
  // not depend on how much of a key is right.
  void CheckKey(const HttpRequest& request) const;
  // A browser names the page that asks. Throws ApiError 403 unless it is ours, or one of the allowed origins. A server
  // on a loopback address is its own page's only under a loopback name, so that no other name can be pointed at it.
  void CheckOrigin(const HttpRequest& request) const;
  // Adds what lets a page of an allowed origin read the answer.
  void AddCorsHeaders(HttpExchange& exchange) const;

 private:
  bool IsAllowed(std::string_view origin) const;
  bool IsOwn(const HttpRequest& request) const;

  std::vector<std::string> key_digests_;  // SHA-256
  std::vector<std::string> origins_;
  bool loopback_;
};

}  // namespace lapidary
