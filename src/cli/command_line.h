#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "cli/cli.h"
#include "cli/usage_error.h"

namespace lapidary {

// What the commands register with. Parsing sets `run` to the chosen command.
struct CommandLine {
  CLI::App& app;
  const CliEnvironment& environment;
  std::function<void()> run;
};

// The options that commands share.
struct ModelOptions {
  std::string folder;
  std::string device = "auto";
  int threads = 0;
  std::string per_layer_table = "auto";
  std::string activations = "f32";
  std::string kv_type = "f32";
  int64_t ctx = 0;

  DType kv_dtype() const { return kv_type == "bf16" ? DType::kBF16 : DType::kF32; }
};

void AddThreadsOption(CLI::App& command, int& threads);
// All of ModelOptions.
void AddModelOptions(CLI::App& command, ModelOptions& options, const CliEnvironment& environment);
// Refuses what is not a whole number in [low, high]: CLI11 alone wraps and clamps numbers that are too large.
CLI::Validator IntegerIn(int64_t low, int64_t high);
// Refuses what is not a finite number that passes `ok`; `wanted` says which do.
CLI::Validator NumberThat(bool (*ok)(double), const std::string& wanted);
// Refuses "".
CLI::Validator NotEmpty(const std::string& wanted);
void AddPrefillChunkOption(CLI::App& command, int64_t& rows);

// Loads with a progress bar.
std::unique_ptr<Backend> LoadBackend(const CliEnvironment& environment, const ModelOptions& options);

// `rows` of --prefill-chunk, 0: `otherwise`. Throws Error kInvalidArgument when negative.
int64_t PrefillChunk(int64_t rows, int64_t otherwise);

// One for each command, in its own file.
void AddGenerateCommand(CommandLine& line);
void AddLogitsCommand(CommandLine& line);
void AddTokenizeCommand(CommandLine& line);
void AddDetokenizeCommand(CommandLine& line);
void AddTemplateCommand(CommandLine& line);
void AddParseCommand(CommandLine& line);
void AddChatCommand(CommandLine& line);
void AddBenchCommand(CommandLine& line);
void AddInspectCommand(CommandLine& line);
void AddSynthCommand(CommandLine& line);
void AddPullCommand(CommandLine& line);
void AddServeCommand(CommandLine& line);

}  // namespace lapidary
