#include "cli/terminal.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace lapidary {
namespace {

using Clock = std::chrono::steady_clock;

volatile sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

constexpr size_t kMostInput = size_t{1} << 30;
constexpr int kBarWidth = 24;
constexpr std::chrono::milliseconds kRedraw(100);
// Work that is done sooner than this shows no bar.
constexpr std::chrono::milliseconds kPatience(300);

std::string ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const size_t count = std::fread(buffer, 1, sizeof(buffer), file);
    text.append(buffer, count);
    if (text.size() > kMostInput) Throw(ErrorKind::kInvalidArgument, name + ": found more than 1 GiB, wanted less");
    if (count < sizeof(buffer)) break;
  }
  if (std::ferror(file)) Throw(ErrorKind::kInvalidArgument, name + ": cannot read: " + std::strerror(errno));
  return text;
}

std::string FormatSeconds(double seconds) {
  const int64_t whole = std::llround(seconds);
  return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

}  // namespace

void Print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw OutputClosed();
  Throw(ErrorKind::kOutOfMemory, std::string("standard output: cannot write: ") + std::strerror(errno));
}

std::string ReadInput() { return ReadAll(stdin, "standard input"); }

std::string ReadStream(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file != nullptr) return ReadAll(file.get(), path);
  const int code = errno;
  Throw(code == ENOENT || code == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kInvalidArgument,
        "cannot open " + path + ": " + std::strerror(code));
}

bool InputIsTerminal() { return isatty(STDIN_FILENO) != 0; }
bool OutputIsTerminal() { return isatty(STDOUT_FILENO) != 0; }

void CatchInterrupt() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

void ThrowIfInterrupted() {
  if (Interrupted()) Throw(ErrorKind::kCancelled, "interrupted");
}

std::string FormatBytes(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} KB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

struct ProgressBar::State {
  ProgressUnit unit;
  bool visible = isatty(STDERR_FILENO) != 0;
  bool drawn = false;
  std::string stage;
  uint64_t first = 0;  // done when the stage began
  Clock::time_point start, last_drawn;

  std::string Amount(double value) const {
    return unit == ProgressUnit::kBytes ? FormatBytes(value) : fmt::format("{:.0f}", value);
  }

  void Update(std::string_view now_stage, uint64_t done, uint64_t total) {
    ThrowIfInterrupted();
    if (!visible) return;
    const Clock::time_point now = Clock::now();
    if (now_stage != stage) {
      stage = now_stage;
      start = now;
      first = done;
    }
    if (now - start < kPatience || now - last_drawn < kRedraw) return;
    last_drawn = now;
    Draw(done, total, std::chrono::duration<double>(now - start).count());
  }

  void Draw(uint64_t done, uint64_t total, double seconds) {
    const double rate = static_cast<double>(done - std::min(done, first)) / seconds;
    std::string line = stage + " ";
    if (total > 0) {
      const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
      const auto filled = static_cast<size_t>(share * kBarWidth);
      line += fmt::format("[{}{}] {:3.0f} % of {}", std::string(filled, '#'), std::string(kBarWidth - filled, ' '),
                          100 * share, Amount(static_cast<double>(total)));
    } else {
      line += Amount(static_cast<double>(done));
    }
    line += fmt::format(", {}/s", Amount(rate));
    if (total > done && rate > 0) {
      line += ", " + FormatSeconds(static_cast<double>(total - done) / rate) + " left";
    }
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    drawn = true;
  }
};

ProgressBar::ProgressBar(ProgressUnit unit) : state_(std::make_unique<State>()) { state_->unit = unit; }
ProgressBar::~ProgressBar() { Clear(); }

ProgressFn ProgressBar::function() {
  return [state = state_.get()](std::string_view stage, uint64_t done, uint64_t total) {
    state->Update(stage, done, total);
  };
}

void ProgressBar::Clear() {
  if (!state_->drawn) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  state_->drawn = false;
}

}  // namespace lapidary
