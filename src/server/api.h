#pragma once

#include "chat/chat_template.h"
#include "generation/text_service.h"
#include "server/access.h"
#include "server/api_error.h"
#include "server/connection.h"
#include "server/http_exchange.h"
#include "server/metrics.h"
#include "server/server_options.h"

namespace lapidary {

// What every endpoint works with. Endpoints are functions of this and one exchange; they throw ApiError, or Error, for
// what the client shall be told.
struct ApiContext {
  TextService& service;
  const ServerOptions& options;
  const ConnectionState& state;
  ChatTemplate chat_template;
  Metrics metrics{};
  int64_t started_unix_s = 0;
};

// Routes requests to endpoints, lets in who may ask, tells errors, logs and counts. Any strand may call.
class Api {
 public:
  Api(TextService& service, const ServerOptions& options, const ConnectionState& state);

  // Throws boost::system::system_error when the client is gone or too slow.
  Task<> Handle(HttpExchange& exchange);

 private:
  Task<> Dispatch(HttpExchange& exchange);
  Task<> Tell(HttpExchange& exchange, const ApiError& error);
  void Log(HttpExchange& exchange) const;

  ApiContext context_;
  Access access_;
};

}  // namespace lapidary
