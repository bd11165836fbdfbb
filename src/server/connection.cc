#include "server/connection.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <random>

#include "server/api_error.h"
#include "server/http_checks.h"

namespace lapidary {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// What a client may send ahead while its request is answered; more than this is read afterwards.
constexpr size_t kReadAhead = 64 << 10;
constexpr size_t kWritePiece = 64 << 10;
// What the system holds for a slow reader; left alone it grows to megabytes a connection.
constexpr int kSendBuffer = 32 << 10;

std::string FreshId() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", engine(), engine());
}

// The connection's own exchange with its client.
class Exchange final : public HttpExchange {
 public:
  Exchange(beast::tcp_stream& stream, const ServerLimits& limits, HttpRequest request, unsigned version,
           bool keep_alive)
      : stream_(stream), limits_(limits), request_(std::move(request)), version_(version), keep_alive_(keep_alive) {}

  const HttpRequest& request() const override { return request_; }
  asio::any_io_executor executor() const override { return stream_.get_executor(); }
  RequestRecord& record() override { return record_; }
  void AddHeader(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }

  Task<> Send(HttpReply reply) override;
  Task<> BeginEvents() override;
  Task<> WriteEvents(std::string bytes) override;
  Task<> EndEvents() override;
  bool events_begun() const override { return events_begun_; }

  bool keep_alive() const { return keep_alive_; }
  void CloseAfterwards() { keep_alive_ = false; }
  bool answered() const { return answered_; }

 private:
  template <typename Body>
  void Describe(http::response<Body>& response, int status, const std::string& content_type);
  // Each piece has the write time to itself: a reader that takes something is not too slow.
  Task<> Write(std::string_view bytes);

  beast::tcp_stream& stream_;
  const ServerLimits& limits_;
  HttpRequest request_;
  unsigned version_;
  bool keep_alive_;
  std::vector<std::pair<std::string, std::string>> headers_;
  RequestRecord record_;
  bool events_begun_ = false, answered_ = false;
};

template <typename Body>
void Exchange::Describe(http::response<Body>& response, int status, const std::string& content_type) {
  record_.status = status;
  response.version(version_);
  response.result(static_cast<unsigned>(status));
  response.keep_alive(keep_alive_);
  response.set(http::field::server, "lapidary/" LAPIDARY_VERSION);
  response.set("X-Request-Id", request_.id);
  response.set("X-Content-Type-Options", "nosniff");
  if (!content_type.empty()) response.set(http::field::content_type, content_type);
  for (const auto& [name, value] : headers_) response.set(name, value);
}

Task<> Exchange::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kWritePiece);
    stream_.expires_after(limits_.write_time);
    const asio::const_buffer buffer(piece.data(), piece.size());
    co_await asio::async_write(stream_, buffer, asio::use_awaitable);
    bytes.remove_prefix(piece.size());
  }
}

Task<> Exchange::Send(HttpReply reply) {
  answered_ = true;
  http::response<http::empty_body> response;
  Describe(response, reply.status, reply.content_type);
  for (const auto& [name, value] : reply.headers) response.set(name, value);
  if (reply.status != 204 && reply.status != 304) response.content_length(reply.body.size());
  std::string bytes =
      fmt::format("HTTP/{}.{} {} {}\r\n", version_ / 10, version_ % 10, reply.status, std::string(response.reason()));
  for (const auto& field : response) {
    bytes += fmt::format("{}: {}\r\n", std::string(field.name_string()), std::string(field.value()));
  }
  bytes += "\r\n";
  if (request_.method != "HEAD") bytes += reply.body;
  co_await Write(bytes);
}

Task<> Exchange::BeginEvents() {
  events_begun_ = answered_ = true;
  if (version_ == 10) keep_alive_ = false;  // no chunks there: the end of the connection is the end of the stream
  http::response<http::empty_body> response;
  Describe(response, 200, "text/event-stream; charset=utf-8");
  response.set(http::field::cache_control, "no-cache");
  response.set("X-Accel-Buffering", "no");
  response.chunked(version_ == 11);
  http::response_serializer<http::empty_body> serializer(response);
  stream_.expires_after(limits_.write_time);
  co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
}

Task<> Exchange::WriteEvents(std::string bytes) {
  if (bytes.empty()) co_return;
  if (version_ == 11) bytes = fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
  co_await Write(bytes);
}

Task<> Exchange::EndEvents() {
  if (version_ == 11) co_await Write("0\r\n\r\n");
}

class Connection {
 public:
  Connection(asio::ip::tcp::socket socket, const ServerLimits& limits, const HttpHandler& handler,
             ConnectionState& state)
      : stream_(std::move(socket)),
        limits_(limits),
        handler_(handler),
        state_(state),
        buffer_(limits.header_bytes + kReadAhead) {}

  Task<> Run();

 private:
  using Parser = http::request_parser<http::string_body>;

  Task<bool> WaitForRequest();
  Task<bool> ReadRequest(Parser& parser);
  Task<bool> ReadBody(Parser& parser);
  Task<> Answer(Parser& parser);
  Task<> Handle(Exchange& exchange);
  Task<> WatchClient();
  Task<> Refuse(const HttpRefusal& refusal);
  Task<> Linger();

  beast::tcp_stream stream_;
  const ServerLimits& limits_;
  const HttpHandler& handler_;
  ConnectionState& state_;
  beast::flat_buffer buffer_;
  bool first_ = true;
  bool open_ = true;
};

HttpRequest MakeRequest(http::request<http::string_body>& message) {
  const auto field = [&](auto name) { return std::string(message[name]); };
  HttpRequest request;
  request.id = FreshId();
  request.method = std::string(message.method_string());
  request.path = std::string(message.target());
  request.path.resize(std::min(request.path.size(), request.path.find('?')));
  request.authorization = field(http::field::authorization);
  request.origin = field(http::field::origin);
  request.host = field(http::field::host);
  request.if_none_match = field(http::field::if_none_match);
  request.preflight_method = field(http::field::access_control_request_method);
  request.body = std::move(message.body());
  return request;
}

Task<> Connection::Run() {
  error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  // No co_await inside a condition: GCC 12 does not keep to the order of && there.
  while (open_) {
    const bool begins = co_await WaitForRequest();
    if (!begins) break;
    Parser parser;
    const bool complete = co_await ReadRequest(parser);
    if (!complete) break;
    co_await Answer(parser);
    first_ = false;
  }
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

// A connection that says nothing costs no more than its buffer until its time is over.
Task<bool> Connection::WaitForRequest() {
  if (buffer_.size() > 0) co_return true;
  error_code error;
  stream_.expires_after(first_ ? limits_.header_time : limits_.idle_time);
  const size_t count =
      co_await stream_.async_read_some(buffer_.prepare(2048), asio::redirect_error(asio::use_awaitable, error));
  buffer_.commit(count);
  co_return !error;
}

Task<bool> Connection::ReadRequest(Parser& parser) {
  parser.header_limit(static_cast<uint32_t>(limits_.header_bytes));
  parser.body_limit(limits_.body_bytes);
  error_code error;
  stream_.expires_after(limits_.header_time);
  co_await http::async_read_header(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  std::optional<HttpRefusal> refusal = error ? RefusalOf(error) : CheckHeader(parser.get());
  if (refusal) co_await Refuse(*refusal);
  if (error || refusal) co_return false;
  co_return co_await ReadBody(parser);
}

Task<bool> Connection::ReadBody(Parser& parser) {
  error_code error;
  stream_.expires_after(limits_.body_time);
  if (parser.content_length().value_or(0) > limits_.body_bytes) {
    error = http::error::body_limit;
  } else if (!parser.get()[http::field::expect].empty() && !parser.is_done()) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    const asio::const_buffer bytes(kContinue.data(), kContinue.size());
    co_await asio::async_write(stream_, bytes, asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error) co_await http::async_read(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_return true;
  if (const std::optional<HttpRefusal> refusal = RefusalOf(error)) co_await Refuse(*refusal);
  co_return false;
}

// Says why and closes. What the client still sends is read for a moment: closing at once would take the answer away
// from it.
Task<> Connection::Refuse(const HttpRefusal& refusal) {
  Exchange exchange(stream_, limits_, {.id = FreshId()}, 11, false);
  const ApiError error(refusal.status, refusal.message);
  HttpReply reply;
  reply.status = refusal.status;
  reply.body = error.Body().dump();
  co_await exchange.Send(std::move(reply));
  co_await Linger();
}

Task<> Connection::Linger() {
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  constexpr size_t kMost = 64 << 20;
  std::vector<char> waste(64 << 10);
  stream_.expires_after(std::chrono::seconds(2));
  for (size_t taken = 0; !error && taken < kMost;) {
    const asio::mutable_buffer buffer(waste.data(), waste.size());
    const size_t count = co_await stream_.async_read_some(buffer, asio::redirect_error(asio::use_awaitable, error));
    taken += count;
  }
}

Task<> Connection::Answer(Parser& parser) {
  using asio::experimental::awaitable_operators::operator||;
  http::request<http::string_body> message = parser.release();
  const bool keep_alive = message.keep_alive() && !state_.draining;
  Exchange exchange(stream_, limits_, MakeRequest(message), message.version(), keep_alive);
  struct Count {
    explicit Count(std::atomic<int>& value) : count(value) { ++count; }
    ~Count() { --count; }
    std::atomic<int>& count;
  } in_flight(state_.in_flight);
  co_await (Handle(exchange) || WatchClient());
  open_ = open_ && exchange.keep_alive() && exchange.answered();
}

// Never throws, so that it ends the watch whatever happens.
Task<> Connection::Handle(Exchange& exchange) {
  try {
    co_await handler_(exchange);
  } catch (const std::exception&) {
    open_ = false;  // the client is gone or too slow
  }
}

// Ends when the client closes its side. Reads what it sends ahead, so that the end is seen behind it.
Task<> Connection::WatchClient() {
  error_code error;
  while (!error && buffer_.size() < kReadAhead) {
    const size_t count = co_await stream_.socket().async_read_some(buffer_.prepare(4096),
                                                                   asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(count);
  }
  while (!error) {
    co_await stream_.socket().async_wait(asio::ip::tcp::socket::wait_error,
                                         asio::redirect_error(asio::use_awaitable, error));
  }
  if (error != asio::error::operation_aborted) open_ = false;
}

}  // namespace

Task<> ServeConnection(asio::ip::tcp::socket socket, const ServerLimits& limits, const HttpHandler& handler,
                       ConnectionState& state) {
  Connection connection(std::move(socket), limits, handler, state);
  try {
    co_await connection.Run();
  } catch (const boost::system::system_error&) {
    // The client is gone: there is nobody to tell.
  }
}

}  // namespace lapidary
