#include "server/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "../engine/fake_backend.h"
#include "../generation/small_tokenizer.h"
#include "base/error.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Small = SmallTokenizer;

// A connection of a client that speaks bytes.
class Client {
 public:
  explicit Client(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Post(const std::string& path, const std::string& body) const {
    const std::string request =
        "POST " + path +
        " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    EXPECT_EQ(send(socket_, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  }
  // Up to `text`, or to the end of the connection.
  std::string ReadTo(const std::string& text) const {
    std::string all;
    char buffer[4096];
    while (all.find(text) == std::string::npos) {
      const ssize_t count = recv(socket_, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      all.append(buffer, static_cast<size_t>(count));
    }
    return all;
  }
  std::string ReadAll() const { return ReadTo("\x01 never"); }
  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
};

// A server over a model that says 'a' for as long as it may. No test depends on how fast it is: an answer that has to
// last is held in a step, or has more tokens than any test waits for.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest() : backend_({.vocab = 1000, .max_position_embeddings = 100'000}) {
    folder_.Write("tokenizer.json", Small::JsonText());
    backend_.script = [](std::span<const int32_t>) { return Small::Character('a'); };
    options_.port = 0;
    options_.limits.keep_alive = std::chrono::milliseconds(20);
  }
  ~ServerTest() override {
    if (server_) CutServer();
  }

  void Start() {
    service_ = std::make_unique<TextService>(folder_.path(), backend_,
                                             TextServiceOptions{.engine = {.max_sequences = 2}, .max_waiting = 10});
    StartServer();
  }
  void StartServer() {
    server_ = std::make_unique<Server>(*service_, options_);
    runner_ = std::thread([this] { server_->Run(); });
  }
  void CutServer() {
    server_->Cut();
    runner_.join();
    server_.reset();
  }
  std::string Ask(const std::string& path, const std::string& body) const {
    const Client client(server_->port());
    client.Post(path, body);
    return client.ReadAll();
  }
  static void WaitUntil(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(condition());
  }
  // Takes a millisecond for each step, so that an answer as long as the context outlives every test.
  void SlowSteps() {
    backend_.on_step = [](const StepBatch&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  }
  void WaitUntilIdle() const {
    WaitUntil([this] {
      const EngineCounters engine = service_->counters().engine;
      return service_->live() == 0 && engine.running == 0 && engine.used_blocks[0] + engine.used_blocks[1] == 0;
    });
  }

  TemporaryFolder folder_;
  FakeBackend backend_;
  ServerOptions options_;
  std::unique_ptr<TextService> service_;
  std::unique_ptr<Server> server_;
  std::thread runner_;
};

TEST_F(ServerTest, AnswersWholeAndStreamed) {
  Start();
  EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 4})"), HasSubstr(R"("text":"aaaa")"));
  const std::string stream = Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 3, "stream": true})");
  EXPECT_THAT(stream, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(stream, HasSubstr("text/event-stream"));
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
  WaitUntilIdle();
}

// Field report 27: an answer that fails is no answer, and the next one works.
TEST_F(ServerTest, AFailedStepIsToldBeforeAndBehindTheFirstByte) {
  std::atomic<bool> fails = true;
  backend_.on_step = [&](const StepBatch&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (fails) Throw(ErrorKind::kDevice, "layer 3: found a number that is not finite");
  };
  Start();
  const std::string whole = Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 9})");
  EXPECT_THAT(whole, StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(whole, HasSubstr("layer 3"));
  EXPECT_THAT(whole, HasSubstr("server_error"));
  EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha", "stream": true})"), StartsWith("HTTP/1.1 500 "));
  fails = false;
  const Client client(server_->port());
  client.Post("/v1/completions", R"({"prompt": "alpha", "max_tokens": 90000, "stream": true})");
  EXPECT_THAT(client.ReadTo("data: "), StartsWith("HTTP/1.1 200 "));
  fails = true;
  const std::string stream = client.ReadAll();
  EXPECT_THAT(stream, HasSubstr("data: {\"error\":{\"message\":\"layer 3"));
  EXPECT_THAT(stream, Not(HasSubstr("[DONE]")));
  fails = false;
  EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 2})"), HasSubstr(R"("text":"aa")"));
  WaitUntilIdle();
}

// Field report 36, in every state.
TEST_F(ServerTest, AClientThatGoesAwayEndsItsAnswer) {
  SlowSteps();
  Start();
  for (const char* stream : {"true", "false"}) {
    const std::string body = std::string(R"({"prompt": "alpha", "max_tokens": 90000, "stream": )") + stream + "}";
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 5; ++i) {  // two run, three wait
      clients.push_back(std::make_unique<Client>(server_->port()));
      clients.back()->Post("/v1/completions", body);
    }
    WaitUntil([this] { return service_->live() == 5 && service_->counters().engine.running == 2; });
    for (const auto& client : clients) client->Close();
    WaitUntilIdle();
  }
  EXPECT_EQ(service_->counters().cancelled, 10);
}

// More of them than answers that run at once: each is paused when the buffers on its way are full.
TEST_F(ServerTest, ReadersThatTakeNothingHoldUpNobody) {
  options_.limits.stream_buffer_bytes = 2000;
  options_.limits.write_time = std::chrono::hours(1);
  Start();
  {
    std::vector<std::unique_ptr<Client>> slow;
    for (int i = 0; i < 3; ++i) {
      slow.push_back(std::make_unique<Client>(server_->port()));
      slow.back()->Post("/v1/completions",
                        R"({"prompt": "alpha", "max_tokens": 90000, "stream": true, "logprobs": 20, "n": 2})");
    }
    // They also pause for a moment while their buffers fill.
    const auto all_pause = [this] {
      const auto counters = service_->counters().engine;
      return counters.paused == 6 && counters.running == 0;
    };
    WaitUntil(all_pause);
    EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 2})"), HasSubstr("aa"));
    WaitUntil(all_pause);
  }
  WaitUntilIdle();
  EXPECT_EQ(service_->counters().cancelled, 6);
}

TEST_F(ServerTest, AReaderThatTakesNothingForTooLongIsCut) {
  options_.limits.stream_buffer_bytes = 2000;
  options_.limits.write_time = std::chrono::milliseconds(300);
  Start();
  const Client slow(server_->port());
  slow.Post("/v1/completions", R"({"prompt": "alpha", "max_tokens": 90000, "stream": true, "logprobs": 20})");
  WaitUntil([this] { return service_->counters().cancelled == 1; });
  WaitUntilIdle();
}

TEST_F(ServerTest, AReaderThatWasSlowGetsAllOfIt) {
  options_.limits.stream_buffer_bytes = 2000;
  options_.limits.write_time = std::chrono::hours(1);
  Start();
  const Client slow(server_->port());
  slow.Post("/v1/completions", R"({"prompt": "alpha", "max_tokens": 1000, "stream": true, "logprobs": 20})");
  WaitUntil([this] { return service_->counters().engine.paused == 1; });
  const std::string all = slow.ReadAll();
  EXPECT_THAT(all, HasSubstr("[DONE]"));
  size_t tokens = 0;
  for (size_t at = all.find("\"text\":\""); at != std::string::npos; at = all.find("\"text\":\"", at + 1)) {
    tokens += all.find('"', at + 8) - (at + 8);
  }
  EXPECT_EQ(tokens, 1000u);
  WaitUntilIdle();
}

TEST_F(ServerTest, AStreamThatWaitsSendsComments) {
  std::atomic<bool> blocked = true;
  backend_.on_step = [&](const StepBatch&) {
    while (blocked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  Start();
  const Client client(server_->port());
  client.Post("/v1/completions", R"({"prompt": "alpha", "max_tokens": 2, "stream": true})");
  EXPECT_THAT(client.ReadTo(": keep-alive\n\n"), HasSubstr(": keep-alive"));
  blocked = false;
  EXPECT_THAT(client.ReadAll(), HasSubstr("[DONE]"));
}

TEST_F(ServerTest, AnAnswerThatTakesTooLongIsEnded) {
  options_.limits.answer_time = std::chrono::milliseconds(50);
  SlowSteps();
  Start();
  EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 90000})"), StartsWith("HTTP/1.1 504 "));
  EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 90000, "stream": true})"),
              HasSubstr("timeout"));
  WaitUntilIdle();
}

TEST_F(ServerTest, DrainLetsAnswersEndAndRefusesNewOnes) {
  std::atomic<int> steps = 0;
  std::atomic<bool> held = true;
  backend_.on_step = [&](const StepBatch&) {
    for (++steps; held && steps > 2;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  Start();
  const Client running(server_->port());
  running.Post("/v1/completions", R"({"prompt": "alpha", "max_tokens": 200, "stream": true})");
  running.ReadTo("data: ");
  server_->Drain();
  EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha"})"), StartsWith("HTTP/1.1 503 "));
  held = false;
  EXPECT_THAT(running.ReadAll(), HasSubstr("[DONE]"));
}

// Tokens come all the time while the server goes away, and each wants to wake its connection.
TEST_F(ServerTest, GoesAwayWhileTheServiceGoesOn) {
  options_.limits.stream_pace = std::chrono::milliseconds(0);
  Start();
  for (int round = 0; round < 20; ++round) {
    const Client one(server_->port()), other(server_->port());
    for (const Client* client : {&one, &other}) {
      client->Post("/v1/completions", R"({"prompt": "alpha", "max_tokens": 90000, "stream": true})");
      EXPECT_THAT(client->ReadTo("data: "), StartsWith("HTTP/1.1 200 "));
    }
    CutServer();
    WaitUntilIdle();
    StartServer();
  }
  EXPECT_THAT(Ask("/v1/completions", R"({"prompt": "alpha", "max_tokens": 2})"), HasSubstr(R"("text":"aa")"));
}

// Ends the process, with signals behind the destruction of everything that HandleSignals makes.
[[noreturn]] void ServeAndExit() {
  // What is registered first runs last.
  std::atexit([] {
    for (const int signal : {SIGTERM, SIGINT}) std::raise(signal);
  });
  {
    TemporaryFolder folder;
    folder.Write("tokenizer.json", Small::JsonText());
    FakeBackend backend({.vocab = 1000});
    TextService service(folder.path(), backend, {});
    ServerOptions options;
    options.port = 0;
    Server server(service, options);
    server.HandleSignals();
    std::raise(SIGTERM);
    server.Run();
  }
  std::exit(0);
}

TEST(ServerSignals, DoNotKillUpToTheLastOfTheExit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ServeAndExit(), ::testing::ExitedWithCode(0), "");
}

TEST_F(ServerTest, RefusesAnAddressThatCannotBeHad) {
  Start();
  ServerOptions other;
  other.port = server_->port();
  EXPECT_THROW(Server(*service_, other), Error);
  other.host = "not an address";
  EXPECT_THROW(Server(*service_, other), Error);
}

}  // namespace
}  // namespace lapidary
