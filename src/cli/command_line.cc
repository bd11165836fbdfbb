#include "cli/command_line.h"

#include "base/error.h"
#include "cli/terminal.h"

namespace lapidary {

void AddFolderOption(CLI::App& command, ModelOptions& options, const CliEnvironment& environment) {
  options.folder = environment.demo_model;
  command.add_option("-m,--model", options.folder, "Model folder (default: the bundled demo model)")->type_name("DIR");
}

void AddThreadsOption(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads; 0: one for each physical core")
      ->type_name("N")
      ->check(CLI::Range(0, 4096));
}

void AddContextOption(CLI::App& command, ModelOptions& options) {
  command.add_option("--ctx", options.ctx, "Context in tokens; 0: all the model has")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
}

void AddModelOptions(CLI::App& command, ModelOptions& options, const CliEnvironment& environment) {
  AddFolderOption(command, options, environment);
  command.add_option("--device", options.device, "cpu, cuda, or auto: the best there is")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  AddThreadsOption(command, options.threads);
  command.add_option("--kv-type", options.kv_type, "Element type of the K/V cache: f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  AddContextOption(command, options);
}

void AddPrefillChunkOption(CLI::App& command, int64_t& rows) {
  command.add_option("--prefill-chunk", rows, "Prompt tokens of one step at most")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
}

int64_t PrefillChunk(int64_t rows, int64_t otherwise) { return rows == 0 ? otherwise : rows; }

std::unique_ptr<Backend> LoadBackend(const CliEnvironment& environment, const ModelOptions& options) {
  ProgressBar bar(ProgressUnit::kBytes);
  return environment.load_backend({options.folder, options.device, options.threads}, bar.function());
}

}  // namespace lapidary
