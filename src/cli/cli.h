#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/progress.h"

namespace lapidary {

struct BackendOptions {
  std::string folder;
  std::string device = "auto";  // cpu, cuda, auto
  int threads = 0;              // 0: one for each physical core
  // GPU only: where the table of per-layer embeddings lies (auto, gpu, host), and whether large products take
  // activations rounded to bfloat16.
  std::string per_layer_table = "auto";
  bool bf16_activations = false;
};

// What only the program's main() knows: the backends built into it, and where the demo model lies.
struct CliEnvironment {
  std::function<std::unique_ptr<Backend>(const BackendOptions&, const ProgressFn&)> load_backend;
  std::string demo_model;
};

// Runs one command line. Returns the exit status: 0 done, 1 an error (one line on stderr), 2 wrong usage (the same).
// An answer stopped by Ctrl-C, or by a reader that closed the output, is done. Does not throw. Ignores SIGPIPE from
// then on.
int RunCli(int argc, const char* const* argv, const CliEnvironment& environment);

}  // namespace lapidary
