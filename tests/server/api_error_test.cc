#include "server/api_error.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

std::string BodyOf(int status, const std::string& message, const std::string& param, const std::string& code) {
  return ApiError(status, message, param, code).Body().dump();
}

TEST(ApiError, HasOpenAisForm) {
  EXPECT_EQ(BodyOf(400, "no", "n", "c"),
            R"({"error":{"message":"no","type":"invalid_request_error","param":"n","code":"c"}})");
  EXPECT_EQ(BodyOf(500, "oh", "", ""), R"({"error":{"message":"oh","type":"server_error","param":null,"code":null}})");
  EXPECT_NE(BodyOf(429, "busy", "", "").find("rate_limit_error"), std::string::npos);
}

TEST(ApiError, TellsValuesFromFailures) {
  EXPECT_EQ(FromError(Error(ErrorKind::kInvalidArgument, "x")).status(), 400);
  EXPECT_EQ(FromError(Error(ErrorKind::kDevice, "x")).status(), 500);
  EXPECT_EQ(FromError(Error(ErrorKind::kCancelled, "x")).status(), 503);
}

}  // namespace
}  // namespace lapidary
