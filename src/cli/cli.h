#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/progress.h"
#include "base/thread_pool.h"

namespace lapidary {

struct BackendOptions {
  std::string folder;
  std::string device = "auto";  // cpu, cuda, auto
  int threads = 0;              // 0: one for each physical core
};

// What only the program's main() knows: the backends built into it, where the demo model lies, and how to measure the
// machine.
struct CliEnvironment {
  std::function<std::unique_ptr<Backend>(const BackendOptions&, const ProgressFn&)> load_backend;
  std::string demo_model;
  std::function<double(ThreadPool&)> measure_read_bandwidth;  // bytes/s of all threads together
  std::function<double(ThreadPool&)> measure_fma_peak;        // float32 flop/s of all threads together
};

// Runs one command line. Returns the exit status: 0 done, 1 an error (one line on stderr), 2 wrong usage (the same).
// An answer stopped by Ctrl-C, or by a reader that closed the output, is done. Does not throw. Ignores SIGPIPE from
// then on.
int RunCli(int argc, const char* const* argv, const CliEnvironment& environment);

}  // namespace lapidary
