#pragma once

#include <stdexcept>

namespace lapidary {

// A command line that is wrong whatever files there are: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lapidary
