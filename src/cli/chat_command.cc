#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "cli/answer_printer.h"
#include "cli/chat_json.h"
#include "cli/chat_session.h"
#include "cli/command_line.h"
#include "cli/line_reader.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"

namespace lapidary {
namespace {

constexpr const char* kHelp =
    "/reset   forget the conversation (the system message stays)\n"
    "/help    this\n"
    "/exit    leave; so does the end of input (Ctrl-D)\n"
    "Ctrl-C   stop the answer\n"
    "A line that begins with // is a message that begins with /.\n";

struct Options {
  ModelOptions model;
  ChatSettings chat;
  bool match_special = false;
};

AnswerStyle StyleFor(bool terminal) {
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org
  const bool color = terminal && (no_color == nullptr || *no_color == '\0');
  return {.show_thought = terminal, .dim_thought = color, .plain_controls = terminal};
}

class Conversation {
 public:
  Conversation(ChatSession& session, bool interactive)
      : session_(session), interactive_(interactive), style_(StyleFor(OutputIsTerminal())) {}

  // Up to /exit or the end of input.
  void Run() {
    if (interactive_) Print("Type a message, or /help.\n");
    LineReader reader;
    std::string line;
    while (true) {
      CatchInterrupt();
      if (interactive_) Print("> ");
      const LineReader::Status status = reader.Next(line);
      if (status == LineReader::Status::kInterrupted) {
        Print("\n(/exit leaves)\n");
        continue;
      }
      if (status == LineReader::Status::kEnd) {
        if (interactive_) Print("\n");
        return;
      }
      if (!Take(line)) return;
    }
  }

 private:
  // Returns false to leave.
  bool Take(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos) return true;
    if (line.starts_with("//")) {
      Ask(line.substr(1));
    } else if (!line.starts_with('/')) {
      Ask(line);
    } else if (line == "/exit" || line == "/quit") {
      return false;
    } else if (line == "/reset") {
      session_.Reset();
    } else if (line == "/help") {
      Print(kHelp);
    } else {
      Complain("found the command " + Printable(line, 40) + ", wanted /reset, /help or /exit");
    }
    return true;
  }

  // On a terminal people go on after a mistake; in a pipe what follows would answer to something else.
  void Complain(const std::string& message) {
    if (!interactive_) Throw(ErrorKind::kInvalidArgument, "chat: " + message);
    std::fprintf(stderr, "lapidary: %s\n", message.c_str());
  }

  void Ask(const std::string& question) {
    CatchInterrupt();
    AnswerPrinter printer(style_, [](std::string_view text) { Print(text); });
    FinishReason finish = FinishReason::kNone;
    try {
      finish = session_.Ask(question, [&](const ChatEvent* event) {
        if (event != nullptr) printer.Add(*event);
        return !Interrupted();
      });
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInvalidArgument) throw;
      Complain(error.what());
      return;
    }
    printer.Finish();
    if (finish == FinishReason::kLength) spdlog::warn("the answer was cut: no more tokens were allowed (-n, --ctx)");
  }

  ChatSession& session_;
  const bool interactive_;
  const AnswerStyle style_;
};

void RunChat(Options& o, const CliEnvironment& environment) {
  CatchInterrupt();
  const std::unique_ptr<Backend> backend = LoadBackend(environment, o.model);
  if (o.match_special) o.chat.special_text = SpecialText::kMatch;
  ChatSession session(
      o.model.folder, *backend,
      {.max_context = o.model.ctx, .step_tokens = backend->PreferredStepTokens(), .kv_type = o.model.kv_dtype()},
      ChatVariantOfModel(o.model.folder), o.chat);
  Conversation(session, InputIsTerminal()).Run();
}

}  // namespace

void AddChatCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("chat", "Talks with the model: a line of input, an answer");
  command.add_option("--system", o->chat.system, "System message")->type_name("TEXT");
  command.add_flag("--think", o->chat.enable_thinking, "Let the model think first; shown dim on a terminal");
  command
      .add_option("-n,--max-tokens", o->chat.generate.max_new_tokens,
                  "Tokens of an answer at most; -1 (default): until the context is full")
      ->type_name("N")
      ->check(IntegerIn(-1, std::numeric_limits<int64_t>::max()));
  AddSamplingOptions(command, o->chat.generate);
  command.add_flag("--match-special", o->match_special,
                   "Special tokens in messages count as such, as in transformers; by default they are text");
  AddModelOptions(command, o->model, line.environment);
  command.footer(
      "Sampling options that are not given come from the model's generation_config.json, else greedy.\n"
      "In a pipe each line is a message, and only answers are written.\n"
      "Examples:\n"
      "  lapidary chat\n"
      "  lapidary chat -m DIR --think --system \"Be brief.\"\n"
      "  printf 'What is the capital of France?\\n' | lapidary chat");
  command.callback([&line, o] { line.run = [&line, o] { RunChat(*o, line.environment); }; });
}

}  // namespace lapidary
