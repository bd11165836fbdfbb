#pragma once

#include <stdexcept>
#include <string>

namespace lapidary {

enum class ErrorKind {
  kNotFound,         // a file, folder, tensor or entry that should exist does not
  kCorruptFile,      // foreign bytes that contradict their format or each other
  kUnsupported,      // well-formed, but not something this engine computes
  kInvalidArgument,  // a value from the caller outside what is allowed
  kOutOfMemory,      // memory or disk space that could not be had
  kDevice,           // a device failed, or the model produced numbers that are not finite
  kCancelled,        // the caller asked to stop
};

// The one exception that crosses the library's boundary. what() is one line without a final full stop that says
// what, where, found and wanted. Never thrown by kernels; safe to rethrow on another thread.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] inline void Throw(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

}  // namespace lapidary
