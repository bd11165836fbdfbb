#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "chat/ordered_json.h"

namespace lapidary {

// What the client is told instead of an answer, in OpenAI's form.
class ApiError : public std::exception {
 public:
  ApiError(int status, std::string message, std::string param = "", std::string code = "", int retry_after_s = 0)
      : status_(status),
        message_(std::move(message)),
        param_(std::move(param)),
        code_(std::move(code)),
        retry_after_s_(retry_after_s) {}

  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& param() const { return param_; }
  // Seconds for the header Retry-After; 0: none.
  int retry_after_s() const { return retry_after_s_; }

  // {"error": {"message", "type", "param", "code"}}: param and code are null when empty, the type follows the status.
  OrderedJson Body() const;

 private:
  int status_;
  std::string message_, param_, code_;
  int retry_after_s_;
};

// 400 for a field: "temperature: found -1, wanted a number from 0 to 100".
[[noreturn]] void RefuseField(const std::string& param, const std::string& found, const std::string& wanted);

// What an Error means to the client: 400 for values, 503 for cancelled work, 500 for the rest.
ApiError FromError(const Error& error);

}  // namespace lapidary
