#include "hub/workers.h"

#include <gmock/gmock.h>

#include <csignal>
#include <stdexcept>

#include "expect_error.h"

namespace lapidary {
namespace {

TEST(Workers, RunsTheBodyOnEachThreadAndPolls) {
  StopFlag stop;
  std::atomic<int> runs = 0;
  int polls = 0;
  RunWorkers(
      3, stop, [&] { ++runs; }, [&] { ++polls; });
  EXPECT_EQ(runs.load(), 3);
  EXPECT_GE(polls, 1);
  EXPECT_FALSE(stop.IsSet());
}

TEST(Workers, FirstExceptionOfAThreadStopsTheOthers) {
  StopFlag stop;
  std::atomic<int> order = 0;
  const auto body = [&] {
    if (order++ == 0) throw std::runtime_error("first");
    while (true) {
      stop.Check();
      stop.SleepFor(std::chrono::milliseconds(10'000));
    }
  };
  EXPECT_THROW(RunWorkers(4, stop, body, [] {}), std::runtime_error);
  EXPECT_TRUE(stop.IsSet());
}

TEST(Workers, ExceptionOfThePollStopsTheThreads) {
  StopFlag stop;
  const auto body = [&] {
    while (!stop.IsSet()) stop.SleepFor(std::chrono::milliseconds(10'000));
  };
  const std::string text = ExpectError(
      ErrorKind::kCancelled, [&] { RunWorkers(2, stop, body, [] { Throw(ErrorKind::kCancelled, "enough"); }); });
  EXPECT_EQ(text, "enough");
}

TEST(Workers, ThreadsTakeNoSignals) {
  StopFlag stop;
  sigset_t blocked;
  sigemptyset(&blocked);
  RunWorkers(
      1, stop, [&] { pthread_sigmask(SIG_BLOCK, nullptr, &blocked); }, [] {});
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 1);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 1);
  EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);
}

}  // namespace
}  // namespace lapidary
