#include "server/api_error.h"

namespace lapidary {
namespace {

OrderedJson OrNull(const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); }

const char* TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

OrderedJson ApiError::Body() const {
  OrderedJson error;
  error["message"] = message_;
  error["type"] = TypeOf(status_);
  error["param"] = OrNull(param_);
  error["code"] = OrNull(code_);
  OrderedJson body;
  body["error"] = std::move(error);
  return body;
}

void RefuseField(const std::string& param, const std::string& found, const std::string& wanted) {
  throw ApiError(400, param + ": found " + found + ", wanted " + wanted, param, "invalid_value");
}

ApiError FromError(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kCorruptFile:
    case ErrorKind::kUnsupported:
    case ErrorKind::kNotFound:
      return ApiError(400, error.what());
    case ErrorKind::kCancelled:
      return ApiError(503, error.what());
    case ErrorKind::kOutOfMemory:
    case ErrorKind::kDevice:
      break;
  }
  return ApiError(500, error.what());
}

}  // namespace lapidary
