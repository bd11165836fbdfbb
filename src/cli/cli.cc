#include "cli/cli.h"

#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <numeric>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

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

// Insertions, deletions and replacements from one to the other.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

// What to say when no command was chosen; "" when none was meant.
std::string UnknownCommand(const CLI::App& app, int argc, const char* const* argv) {
  int at = 1;
  while (at < argc && argv[at][0] == '-') at += std::string_view(argv[at]) == "--log-level" ? 2 : 1;
  if (at >= argc) return "";
  const std::string found = std::string(argv[at]).substr(0, 40);
  std::string all, nearest;
  size_t distance = 3;
  for (const CLI::App* command : app.get_subcommands({})) {
    all += (all.empty() ? "" : ", ") + command->get_name();
    const size_t d = EditDistance(found, command->get_name());
    if (d < distance) distance = d, nearest = command->get_name();
  }
  return "command: found '" + found + "', wanted " + (nearest.empty() ? "one of " + all : nearest + "?");
}

// Returns true when `run` is to be called; otherwise `status` says how it ended.
bool Parse(CLI::App& app, int argc, const char* const* argv, int& status) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& request) {  // --help, --version
    std::ostringstream text;
    app.exit(request, text, text);
    status = Run([&] { Print(text.str()); });
  } catch (const CLI::ParseError& error) {
    std::string command, what = error.what();
    if (app.get_subcommands().empty()) {
      const std::string unknown = UnknownCommand(app, argc, argv);
      if (!unknown.empty()) what = unknown;
    }
    for (const CLI::App* chosen : app.get_subcommands()) command += chosen->get_name() + " ";
    status = Fail(what + " (see lapidary " + command + "--help)", kWrongUsage);
  }
  return false;
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
    AddServeCommand(line);
    int status = kDone;
    if (!Parse(app, argc, argv, status)) return status;
    StartLog(log_level);
    return Run(line.run);
  } catch (const std::exception& error) {
    return Fail(error.what(), kFailed);
  }
}

}  // namespace lapidary
