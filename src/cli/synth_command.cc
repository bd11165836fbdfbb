#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "cli/command_line.h"
#include "cli/terminal.h"
#include "model/config.h"
#include "synth/synth.h"

namespace lapidary {
namespace {

struct Options {
  std::string shape, folder;
  int threads = 0;
};

void RunSynth(const Options& o) {
  CatchInterrupt();
  const std::string config = o.shape.ends_with(".json") ? ReadFile(o.shape, size_t{16} << 20) : SynthShape(o.shape);
  ParseConfig(config, o.shape);  // so that an error names the file that was given
  ProgressBar bar(ProgressUnit::kBytes);
  const int threads = o.threads == 0 ? ThreadPool::DefaultThreads() : o.threads;
  WriteSynthCheckpoint(config, o.folder, threads, bar.function());
}

}  // namespace

void AddSynthCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("synth", "Writes a deterministic synthetic checkpoint");
  command.add_option("--shape", o->shape, "e2b, or a config.json")->type_name("e2b|CONFIG.json")->required();
  command.add_option("-o,--output", o->folder, "Folder to write")->type_name("DIR")->required();
  AddThreadsOption(command, o->threads);
  command.footer("Example:\n  lapidary synth --shape e2b -o /tmp/e2b");
  command.callback([&line, o] { line.run = [o] { RunSynth(*o); }; });
}

}  // namespace lapidary
