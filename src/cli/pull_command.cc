#include <cstdlib>

#include "cli/command_line.h"
#include "cli/parse_values.h"
#include "cli/terminal.h"
#include "hub/download.h"

namespace lapidary {
namespace {

std::string Environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

void RunPull(PullOptions options) {
  CatchInterrupt();
  const std::string name = RepositoryName(options.repository);
  if (options.folder.empty()) options.folder = name;
  options.endpoint = Environment("HF_ENDPOINT", options.endpoint);
  options.token = Environment("HF_TOKEN", "");
  {
    ProgressBar bar(ProgressUnit::kBytes);
    Pull(options, bar.function());
  }
  Print(options.folder + "\n");
}

}  // namespace

void AddPullCommand(CommandLine& line) {
  auto o = std::make_shared<PullOptions>();
  CLI::App& command = *line.app.add_subcommand("pull", "Downloads a model folder from a Hugging Face compatible hub");
  command.add_option("repository", o->repository, "Which model")->type_name("OWNER/NAME")->required();
  command.add_option("-o,--output", o->folder, "Folder to write; default: NAME")->type_name("DIR");
  command.add_option("--revision", o->revision, "Branch, tag or commit");
  command.add_option("--connections", o->connections, "Ranges fetched at the same time")->check(CLI::Range(1, 64));
  command.footer(
      "HF_ENDPOINT is the hub's address, HF_TOKEN the token it may ask for. An interrupted download goes on where it "
      "was.\n"
      "Prints the folder.\n"
      "Example:\n  lapidary pull google/gemma-4-E2B -o models/e2b");
  command.callback([&line, o] { line.run = [o] { RunPull(*o); }; });
}

}  // namespace lapidary
