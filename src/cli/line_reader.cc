#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/terminal.h"

namespace lapidary {
namespace {

// How long Ctrl-C may go unnoticed: it may reach another thread, or come just before the wait.
constexpr int kPatienceMs = 100;

}  // namespace

LineReader::Status LineReader::Next(std::string& line) {
  while (true) {
    if (std::optional<std::string> found = TakeLine()) {
      line = std::move(*found);
      return Status::kLine;
    }
    if (ended_) return Status::kEnd;
    if (Interrupted()) {
      buffer_.clear();
      return Status::kInterrupted;
    }
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kPatienceMs) <= 0) continue;
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      Throw(ErrorKind::kInvalidArgument, std::string("standard input: cannot read: ") + std::strerror(errno));
    }
    ended_ = count == 0;
    buffer_.append(bytes, static_cast<size_t>(count));
  }
}

std::optional<std::string> LineReader::TakeLine() {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos && !(ended_ && !buffer_.empty())) return std::nullopt;
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end == std::string::npos ? end : end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace lapidary
