#pragma once

#include <gtest/gtest.h>

#include <string>

#include "server/api_error.h"

namespace lapidary {

// Expects `read` to throw an ApiError for the field `param`.
template <typename Read>
void ExpectRefusal(const std::string& param, const Read& read, int status = 400) {
  try {
    read();
    ADD_FAILURE() << "accepted, wanted a refusal of " << param;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.param(), param) << error.what();
    EXPECT_EQ(error.status(), status);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

}  // namespace lapidary
