#include "server/api.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <boost/system/system_error.hpp>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/endpoints.h"
#include "server/web_page.h"

namespace lapidary {
namespace {

using Endpoint = Task<> (*)(ApiContext& context, HttpExchange& exchange);

struct Route {
  std::string_view method, path;
  const char* name;  // in metrics
  Endpoint endpoint;
  bool open = false;  // without a key
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", "chat_completions", ChatCompletions},
    {"POST", "/v1/completions", "completions", Completions},
    {"GET", "/v1/models", "models", Models},
    {"POST", "/tokenize", "tokenize", Tokenize},
    {"POST", "/detokenize", "detokenize", Detokenize},
    {"POST", "/apply-template", "apply_template", ApplyTemplate},
    {"GET", "/health", "health", Health, true},
    {"GET", "/metrics", "metrics", ShowMetrics},
};

bool Matches(const Route& route, std::string_view path) {
  if (path == route.path) return true;
  return route.endpoint == Models && path.starts_with("/v1/models/") && path.size() > route.path.size() + 1;
}

const Route* FindRoute(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (Matches(route, path)) return &route;
  }
  return nullptr;
}

bool TakesMethod(std::string_view wanted, std::string_view method) {
  return method == wanted || (wanted == "GET" && method == "HEAD");
}

void CheckMethod(HttpExchange& exchange, std::string_view wanted) {
  if (TakesMethod(wanted, exchange.request().method)) return;
  exchange.AddHeader("Allow", std::string(wanted));
  throw ApiError(405, fmt::format("found method {}, wanted {}", Printable(exchange.request().method, 20), wanted));
}

Task<> SendPage(HttpExchange& exchange, const WebFile& file) {
  exchange.AddHeader("Content-Security-Policy", kPagePolicy);
  exchange.AddHeader("Referrer-Policy", "no-referrer");
  exchange.AddHeader("Cache-Control", "no-cache");
  exchange.AddHeader("ETag", std::string(file.etag));
  HttpReply reply;
  if (exchange.request().if_none_match.find(file.etag) != std::string::npos) {
    reply.status = 304;
    reply.content_type = "";
  } else {
    reply.content_type = file.content_type;
    reply.body = std::string(file.bytes);
  }
  co_await exchange.Send(std::move(reply));
}

}  // namespace

Api::Api(TextService& service, const ServerOptions& options, const ConnectionState& state)
    : context_{.service = service,
               .options = options,
               .state = state,
               .chat_template = ChatTemplate(options.chat_variant),
               .started_unix_s = std::time(nullptr)},
      access_(options) {}

Task<> Api::Handle(HttpExchange& exchange) {
  const auto began = std::chrono::steady_clock::now();
  const auto finish = [&] {
    exchange.record().total_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    context_.metrics.Count(exchange.record());
    Log(exchange);
  };
  try {
    std::optional<ApiError> failure;
    try {
      co_await Dispatch(exchange);
    } catch (const ApiError& error) {
      failure = error;
    } catch (const Error& error) {
      failure = FromError(error);
    } catch (const std::bad_alloc&) {
      failure = ApiError(500, "out of memory");
    }
    if (failure) co_await Tell(exchange, *failure);
  } catch (const boost::system::system_error&) {
    exchange.record().finish = "client_gone";
    finish();
    throw;
  }
  finish();
}

Task<> Api::Dispatch(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  access_.AddCorsHeaders(exchange);
  access_.CheckOrigin(exchange.request());
  const Route* route = FindRoute(request.path);
  if (request.method == "OPTIONS" && route && !request.preflight_method.empty()) {
    HttpReply reply;
    reply.status = 204;
    reply.content_type = "";
    co_await exchange.Send(std::move(reply));
    co_return;
  }
  const bool may_be_page = !route && context_.options.web_page;
  if (const WebFile* file = may_be_page ? FindWebFile(request.path) : nullptr) {
    exchange.record().endpoint = "page";
    CheckMethod(exchange, "GET");
    co_await SendPage(exchange, *file);
    co_return;
  }
  if (!route || !route->open) access_.CheckKey(request);
  if (!route) throw ApiError(404, "nothing is at " + Printable(request.path), "", "not_found");
  exchange.record().endpoint = route->name;
  CheckMethod(exchange, route->method);
  co_await route->endpoint(context_, exchange);
}

// Before the first byte an error is the answer; behind it, the last event of the stream, without the usual end.
Task<> Api::Tell(HttpExchange& exchange, const ApiError& error) {
  exchange.record().finish = error.status() < 500 ? "refused" : "failed";
  std::string body = error.Body().dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  if (error.status() >= 500)
    spdlog::warn("event=error id={} message=\"{}\"", exchange.request().id, Printable(error.what(), 300));
  if (exchange.events_begun()) {
    co_await exchange.WriteEvents("data: " + body + "\n\n");
    co_await exchange.EndEvents();
    co_return;
  }
  if (error.retry_after_s() > 0) exchange.AddHeader("Retry-After", std::to_string(error.retry_after_s()));
  if (error.status() == 401) exchange.AddHeader("WWW-Authenticate", "Bearer");
  HttpReply reply;
  reply.status = error.status();
  reply.body = std::move(body);
  co_await exchange.Send(std::move(reply));
}

void Api::Log(HttpExchange& exchange) const {
  const HttpRequest& request = exchange.request();
  const RequestRecord& r = exchange.record();
  // Those who watch the server ask all the time.
  const bool watches = r.endpoint == "health" || r.endpoint == "metrics";
  spdlog::log(watches ? spdlog::level::debug : spdlog::level::info,
              "event=request id={} method={} endpoint={} status={} finish={} prompt_tokens={} cached_tokens={} "
              "answer_tokens={} "
              "queue_ms={:.1f} first_token_ms={:.1f} total_ms={:.1f}",
              request.id, Printable(request.method, 20), r.endpoint, r.status, r.finish.empty() ? "-" : r.finish,
              r.prompt_tokens, r.cached_tokens, r.answer_tokens, 1e3 * r.queue_s, 1e3 * r.first_token_s,
              1e3 * r.total_s);
}

}  // namespace lapidary
