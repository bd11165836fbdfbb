#include <memory>
#include <string>

#include "backends/cpu/cpu_backend.h"
#include "base/error.h"
#include "cli/cli.h"
#include "demo_model.h"

namespace {

std::unique_ptr<lapidary::Backend> LoadBackend(const lapidary::BackendOptions& options,
                                               const lapidary::ProgressFn& progress) {
  if (options.device == "cuda") {
    lapidary::Throw(lapidary::ErrorKind::kUnsupported,
                    "device: found cuda, wanted cpu or auto: this build has no GPU backend");
  }
  return lapidary::LoadCpuBackend(options.folder, {.threads = options.threads}, progress);
}

}  // namespace

int main(int argc, char** argv) {
  const lapidary::CliEnvironment environment{
      .load_backend = LoadBackend,
      .demo_model = lapidary::FindDemoModel(),
  };
  return lapidary::RunCli(argc, argv, environment);
}
