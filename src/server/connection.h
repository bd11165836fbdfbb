#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>

#include "server/answer_stream.h"
#include "server/http_exchange.h"
#include "server/server_limits.h"

namespace lapidary {

// What the connections of one server share. Any thread.
struct ConnectionState {
  std::atomic<int> connections{0};
  std::atomic<int> in_flight{0};  // requests read whole and not answered yet
  std::atomic<bool> draining{false};
  const std::shared_ptr<StrandGate> gate = std::make_shared<StrandGate>();  // of the connections' strands
};

using HttpHandler = std::function<Task<>(HttpExchange& exchange)>;

// Serves one connection to its end: reads requests within the limits, has `handler` answer each, keeps the connection
// open between them. A client that closes its side while its request is answered ends the answer at once. What is
// malformed or ambiguous gets a 4xx, and the connection is closed. Runs on the socket's executor, which is a strand.
Task<> ServeConnection(boost::asio::ip::tcp::socket socket, const ServerLimits& limits, const HttpHandler& handler,
                       ConnectionState& state);

}  // namespace lapidary
