#pragma once

#include <cstdint>
#include <memory>

#include "generation/text_service.h"
#include "server/server_options.h"

namespace lapidary {

// The HTTP server. docs/server.md describes what it answers.
class Server {
 public:
  // Binds the address. Throws Error kInvalidArgument when it cannot be had. The service must outlive it.
  Server(TextService& service, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  // Serves until it has been drained or cut.
  void Run();
  // From any thread, also before Run. Drain: /health says so, new answers are refused, Run returns when those at hand
  // are done. Cut: Run returns at once, what is at hand is dropped.
  void Drain();
  void Cut();
  // Drains at the first SIGINT or SIGTERM, cuts at the second. To be called before Run.
  void HandleSignals();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lapidary
