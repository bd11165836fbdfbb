#pragma once

#include <gmock/gmock.h>

#include <string>

#include "base/error.h"

namespace lapidary {

// Expects an Error of this kind and returns its text.
template <typename Function>
std::string ExpectError(ErrorKind kind, const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

}  // namespace lapidary
