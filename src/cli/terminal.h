#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "base/progress.h"

namespace lapidary {

// The reader of standard output has gone away: there is nobody to tell.
class OutputClosed : public std::exception {};

// Writes to standard output at once. Throws OutputClosed, or Error kOutOfMemory when it cannot be written.
void Print(std::string_view text);

// All of standard input, or of a file or pipe; at most 1 GiB. Throws Error kInvalidArgument, kNotFound.
std::string ReadInput();
std::string ReadStream(const std::string& path);
bool InputIsTerminal();
bool OutputIsTerminal();

// From now on a first Ctrl-C only sets a flag; a second one ends the program.
void CatchInterrupt();
bool Interrupted();
// Throws Error kCancelled once interrupted.
void ThrowIfInterrupted();

// "1.5 GB"
std::string FormatBytes(double bytes);

enum class ProgressUnit { kBytes, kTokens };

// A progress bar on stderr with rate and time left, drawn only when stderr is a terminal, and taken away when
// destroyed. Its function also turns Ctrl-C into Error kCancelled.
class ProgressBar {
 public:
  explicit ProgressBar(ProgressUnit unit);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Valid as long as the bar.
  ProgressFn function();
  void Clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lapidary
