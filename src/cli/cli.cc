#include "cli/cli.h"

#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/terminal.h"

namespace lapidary {
namespace {

enum Status { kDone = 0, kFailed = 1, kWrongUsage = 2 };

// One line on stderr, whatever the message holds.
int Fail(std::string message, Status status) {
  while (!message.empty() && message.back() == '\n') message.pop_back();
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  std::fprintf(stderr, "lapidary: %s\n", message.c_str());
  return status;
}

void StartLog(const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>("lapidary", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("[%H:%M:%S.%e] [%l] %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

void Describe(CLI::App& app, std::string& log_level) {
  app.description("Runs Gemma 4 text models from a checkpoint folder.");
  app.set_version_flag("--version", "lapidary " LAPIDARY_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error or off; logs go to stderr")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  app.footer(
      "Examples:\n"
      "  lapidary generate \"The capital of France is\"\n"
      "  lapidary generate -m DIR --temp 0.8 --seed 1 -n 100 --prompt-file story.txt\n"
      "  lapidary inspect -m DIR\n"
      "  lapidary COMMAND --help\n"
      "Exit status: 0 done, 1 an error, 2 wrong usage; each error is one line on stderr.");
}

// Returns true when `run` is to be called; otherwise `status` says how it ended.
bool Parse(CLI::App& app, int argc, const char* const* argv, int& status) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& request) {  // --help, --version
    status = app.exit(request);
    std::fflush(stdout);
  } catch (const CLI::ParseError& error) {
    std::string command;
    for (const CLI::App* chosen : app.get_subcommands()) command += chosen->get_name() + " ";
    status = Fail(std::string(error.what()) + " (see lapidary " + command + "--help)", kWrongUsage);
  }
  return false;
}

int Run(const std::function<void()>& command) {
  try {
    command();
    return kDone;
  } catch (const OutputClosed&) {
    return kDone;
  } catch (const UsageError& error) {
    return Fail(error.what(), kWrongUsage);
  } catch (const std::bad_alloc&) {
    return Fail("out of memory", kFailed);
  } catch (const std::exception& error) {
    return Fail(error.what(), kFailed);
  }
}

}  // namespace

int RunCli(int argc, const char* const* argv, const CliEnvironment& environment) {
  try {
    signal(SIGPIPE, SIG_IGN);
    CLI::App app;
    app.name("lapidary");
    std::string log_level = "warn";
    Describe(app, log_level);
    CommandLine line{app, environment, {}};
    AddGenerateCommand(line);
    AddLogitsCommand(line);
    AddTokenizeCommand(line);
    AddDetokenizeCommand(line);
    AddTemplateCommand(line);
    AddParseCommand(line);
    AddChatCommand(line);
    AddBenchCommand(line);
    AddInspectCommand(line);
    AddSynthCommand(line);
    AddPullCommand(line);
    int status = kDone;
    if (!Parse(app, argc, argv, status)) return status;
    StartLog(log_level);
    return Run(line.run);
  } catch (const std::exception& error) {
    return Fail(error.what(), kFailed);
  }
}

}  // namespace lapidary
