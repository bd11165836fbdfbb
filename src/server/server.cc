#include "server/server.h"

#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/api.h"
#include "server/connection.h"

namespace lapidary {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

tcp::acceptor Listen(asio::io_context& context, const ServerOptions& options) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(options.host, error);
  if (error) {
    Throw(ErrorKind::kInvalidArgument, "host: found " + options.host + ", wanted an address such as 127.0.0.1 or ::");
  }
  const tcp::endpoint endpoint(address, options.port);
  tcp::acceptor acceptor(context);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    Throw(ErrorKind::kInvalidArgument,
          "cannot listen on " + options.host + " port " + std::to_string(options.port) + ": " + error.message());
  }
  return acceptor;
}

}  // namespace

class Server::Impl {
 public:
  Impl(TextService& service, const ServerOptions& options)
      : options_(options),
        api_(service, options_, state_),
        acceptor_(Listen(context_, options_)),
        signals_(context_),
        handler_([this](HttpExchange& exchange) { return api_.Handle(exchange); }) {}
  // The service goes on: what it still says to answers that were cut must not reach a context that goes away.
  ~Impl() { state_.gate->Close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  uint16_t port() const { return acceptor_.local_endpoint().port(); }

  void Run() {
    asio::co_spawn(context_, Accept(), asio::detached);
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.threads; ++i) threads.emplace_back([this] { context_.run(); });
    context_.run();
    for (std::thread& thread : threads) thread.join();
  }

  void Drain() {
    if (state_.draining.exchange(true)) return;
    asio::co_spawn(context_, AwaitDrained(), asio::detached);
  }
  void Cut() { context_.stop(); }

  void HandleSignals() {
    // Registered as long as the process lives, its exit included, so never destroyed: a signal that comes while the
    // server goes away does not kill it.
    static asio::io_context& never_run = *new asio::io_context;
    [[maybe_unused]] static const asio::signal_set& registration = *new asio::signal_set(never_run, SIGINT, SIGTERM);
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    AwaitSignal();
  }

 private:
  asio::awaitable<void> Accept();
  asio::awaitable<void> AwaitDrained();
  void AwaitSignal();

  ServerOptions options_;
  ConnectionState state_;
  Api api_;
  asio::io_context context_;
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  HttpHandler handler_;
};

asio::awaitable<void> Server::Impl::Accept() {
  asio::steady_timer pause(context_);
  while (true) {
    error_code error;
    tcp::socket socket =
        co_await acceptor_.async_accept(asio::make_strand(context_), asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      // Out of file descriptors, most likely: some will be closed.
      pause.expires_after(std::chrono::milliseconds(50));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    if (state_.connections >= options_.limits.connections) continue;  // closes it
    ++state_.connections;
    const asio::any_io_executor strand = socket.get_executor();
    asio::co_spawn(strand, ServeConnection(std::move(socket), options_.limits, handler_, state_),
                   [this](const std::exception_ptr& failure) {
                     --state_.connections;
                     if (failure) spdlog::error("event=connection_failed");
                   });
  }
}

asio::awaitable<void> Server::Impl::AwaitDrained() {
  const auto deadline = std::chrono::steady_clock::now() + options_.limits.drain_time;
  asio::steady_timer timer(context_);
  while (state_.in_flight > 0 && std::chrono::steady_clock::now() < deadline) {
    error_code ignored;
    timer.expires_after(std::chrono::milliseconds(20));
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  spdlog::info("event=drained in_flight={}", state_.in_flight.load());
  context_.stop();
}

void Server::Impl::AwaitSignal() {
  signals_.async_wait([this](const error_code& error, int signal) {
    if (error) return;
    spdlog::info("event=signal number={} action={}", signal, state_.draining ? "cut" : "drain");
    if (state_.draining) {
      Cut();
    } else {
      Drain();
      AwaitSignal();
    }
  });
}

Server::Server(TextService& service, const ServerOptions& options) : impl_(std::make_unique<Impl>(service, options)) {}
Server::~Server() = default;
uint16_t Server::port() const { return impl_->port(); }
void Server::Run() { impl_->Run(); }
void Server::Drain() { impl_->Drain(); }
void Server::Cut() { impl_->Cut(); }
void Server::HandleSignals() { impl_->HandleSignals(); }

}  // namespace lapidary
