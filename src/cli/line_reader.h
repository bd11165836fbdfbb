#pragma once

#include <optional>
#include <string>

namespace lapidary {

// Lines of standard input as they come, also from a terminal where Ctrl-C is to be noticed.
class LineReader {
 public:
  enum class Status { kLine, kEnd, kInterrupted };

  // The next line without its end, in `line`. kInterrupted: Ctrl-C came first (see CatchInterrupt); what had been typed
  // is forgotten. Throws Error kInvalidArgument when the input cannot be read.
  Status Next(std::string& line);

 private:
  std::optional<std::string> TakeLine();

  std::string buffer_;
  bool ended_ = false;
};

}  // namespace lapidary
