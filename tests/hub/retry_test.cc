#include "hub/retry.h"

#include <gmock/gmock.h>

#include "expect_error.h"

namespace lapidary {
namespace {

using std::chrono::milliseconds;

TEST(Retry, WaitsDoubleAndEnd) {
  StopFlag stop;
  Retrier retrier({.retries = 3, .first_wait = milliseconds(1)}, stop);
  const TransientFailure failure("connection lost");
  for (const int wait : {1, 2, 4}) {
    EXPECT_EQ(retrier.NextWait(failure), milliseconds(wait));
    retrier.Wait(failure);
  }
  const std::string text = ExpectError(ErrorKind::kDevice, [&] { retrier.Wait(failure); });
  EXPECT_EQ(text, "connection lost (gave up after 3 retries)");
  retrier.Reset();
  EXPECT_EQ(retrier.NextWait(failure), milliseconds(1));
}

TEST(Retry, ServersWaitIsHonouredUpToABound) {
  StopFlag stop;
  const Retrier retrier({.retries = 3, .first_wait = milliseconds(1500)}, stop);
  EXPECT_EQ(retrier.NextWait(TransientFailure("busy", 0)), milliseconds(1500));
  EXPECT_EQ(retrier.NextWait(TransientFailure("busy", 1)), milliseconds(1500));
  EXPECT_EQ(retrier.NextWait(TransientFailure("busy", 7)), milliseconds(7000));
  EXPECT_EQ(retrier.NextWait(TransientFailure("busy", 86'400)), milliseconds(60'000));
}

TEST(Retry, StopEndsTheWait) {
  StopFlag stop;
  stop.Set();
  Retrier retrier({.retries = 3, .first_wait = milliseconds(60'000)}, stop);
  ExpectError(ErrorKind::kCancelled, [&] { retrier.Wait(TransientFailure("busy")); });
}

TEST(Retry, RepeatsTheAttemptUntilItSucceeds) {
  StopFlag stop;
  int attempts = 0;
  const int result = WithRetries({.retries = 3, .first_wait = milliseconds(1)}, stop, [&] {
    if (++attempts < 3) throw TransientFailure("not yet");
    return 42;
  });
  EXPECT_EQ(result, 42);
  EXPECT_EQ(attempts, 3);
}

}  // namespace
}  // namespace lapidary
