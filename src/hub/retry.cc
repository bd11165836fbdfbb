#include "hub/retry.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lapidary {
namespace {

constexpr std::chrono::milliseconds kLongestWait{30'000};
constexpr std::chrono::milliseconds kLongestAskedWait{60'000};
constexpr int kMaxDoublings = 16;

}  // namespace

std::chrono::milliseconds Retrier::NextWait(const TransientFailure& failure) const {
  const auto growing = std::min(kLongestWait, options_.first_wait * (1 << std::min(failures_, kMaxDoublings)));
  const std::chrono::milliseconds asked = std::chrono::seconds(failure.retry_after_seconds());
  return std::max(growing, std::min(asked, kLongestAskedWait));
}

void Retrier::Wait(const TransientFailure& failure) {
  stop_.Check();
  if (failures_ >= options_.retries) {
    Throw(ErrorKind::kDevice, fmt::format("{} (gave up after {} retries)", failure.what(), options_.retries));
  }
  const auto wait = NextWait(failure);
  ++failures_;
  stop_.SleepFor(wait);
  stop_.Check();
}

}  // namespace lapidary
