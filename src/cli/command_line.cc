#include "cli/command_line.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "cli/terminal.h"

namespace lapidary {

void AddThreadsOption(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads; 0: one for each physical core")
      ->type_name("N")
      ->check(IntegerIn(0, 1024));
}

CLI::Validator IntegerIn(int64_t low, int64_t high) {
  using Limits = std::numeric_limits<int64_t>;
  std::string wanted = std::to_string(low) + " to " + std::to_string(high);
  if (high == Limits::max()) wanted = low == Limits::min() ? "64 bits" : std::to_string(low) + " or more";
  const auto check = [=](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high) return "";
    return "found '" + text + "', wanted a whole number of " + wanted;
  };
  return CLI::Validator(check, "");
}

CLI::Validator NumberThat(bool (*ok)(double), const std::string& wanted) {
  const auto check = [=](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && std::isfinite(value) && ok(value)) return "";
    return "found '" + text + "', wanted " + wanted;
  };
  return CLI::Validator(check, "");
}

CLI::Validator NotEmpty(const std::string& wanted) {
  return CLI::Validator([=](const std::string& text) { return text.empty() ? "found '', wanted " + wanted : ""; }, "");
}

void AddModelOptions(CLI::App& command, ModelOptions& options, const CliEnvironment& environment) {
  options.folder = environment.demo_model;
  command.add_option("-m,--model", options.folder, "Model folder (default: the bundled demo model)")
      ->type_name("DIR")
      ->check(NotEmpty("a folder"));
  command.add_option("--device", options.device, "cpu, cuda, or auto: the best there is")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  AddThreadsOption(command, options.threads);
  command
      .add_option("--per-layer-table", options.per_layer_table,
                  "GPU: where the table of per-layer embeddings lies: gpu, host, or auto: gpu when there is room")
      ->check(CLI::IsMember({"auto", "gpu", "host"}));
  command
      .add_option("--activations", options.activations,
                  "GPU: activations of long prompts and large batches as f32 (three bfloat16 terms) or bf16: faster")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command.add_option("--kv-type", options.kv_type, "Element type of the K/V cache: f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command.add_option("--ctx", options.ctx, "Context in tokens; 0: all the model has")
      ->type_name("N")
      ->check(IntegerIn(0, std::numeric_limits<int64_t>::max()));
}

void AddPrefillChunkOption(CLI::App& command, int64_t& rows) {
  command.add_option("--prefill-chunk", rows, "Prompt tokens of one step at most")
      ->type_name("N")
      ->check(IntegerIn(1, int64_t{1} << 20));
}

int64_t PrefillChunk(int64_t rows, int64_t otherwise) { return rows == 0 ? otherwise : rows; }

std::unique_ptr<Backend> LoadBackend(const CliEnvironment& environment, const ModelOptions& options) {
  ProgressBar bar(ProgressUnit::kBytes);
  return environment.load_backend({.folder = options.folder,
                                   .device = options.device,
                                   .threads = options.threads,
                                   .per_layer_table = options.per_layer_table,
                                   .bf16_activations = options.activations == "bf16"},
                                  bar.function());
}

}  // namespace lapidary
