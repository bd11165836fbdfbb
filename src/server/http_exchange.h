#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lapidary {

template <typename T = void>
using Task = boost::asio::awaitable<T>;

// One HTTP request, read whole.
struct HttpRequest {
  std::string id{};      // ours, for logs and the header X-Request-Id
  std::string method{};  // as sent
  std::string path{};    // of the target, without the query
  std::string body{};
  std::string authorization{}, origin{}, host{}, if_none_match{};  // header fields, "" when absent
  std::string preflight_method{};                                  // Access-Control-Request-Method
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers{};
};

// What the log and the metrics say about one request; the endpoint fills in what it knows. Never any text of a prompt
// or an answer.
struct RequestRecord {
  std::string endpoint = "other";  // the route's name, for metrics
  int status = 0;
  std::string finish;  // finish reasons of the choices, or why it ended early
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
  double queue_s = 0, first_token_s = 0, total_s = 0;
};

// One request and the way to answer it: either Send, or BeginEvents, WriteEvents..., EndEvents. All throw
// boost::system::system_error when the client is gone or too slow. Used on the connection's strand only.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual boost::asio::any_io_executor executor() const = 0;
  virtual RequestRecord& record() = 0;
  // Adds a header to whatever is sent.
  virtual void AddHeader(std::string name, std::string value) = 0;

  virtual Task<> Send(HttpReply reply) = 0;
  // The header of a text/event-stream.
  virtual Task<> BeginEvents() = 0;
  virtual Task<> WriteEvents(std::string bytes) = 0;
  virtual Task<> EndEvents() = 0;
  virtual bool events_begun() const = 0;
};

}  // namespace lapidary
