#include <algorithm>
#include <limits>

#include "base/error.h"
#include "chat/chat_parser.h"
#include "cli/chat_json.h"
#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cli/lines.h"
#include "cli/terminal.h"

namespace lapidary {
namespace {

struct Options {
  bool jsonl = false, starts_in_reasoning = false, no_tools = false;
  int64_t split = 0;  // bytes fed at a time; 0: all
};

Json Parse(std::string_view text, const ChatParserOptions& options, int64_t split) {
  ChatParser parser(options);
  const size_t step = split == 0 ? std::max<size_t>(text.size(), 1) : static_cast<size_t>(split);
  for (size_t at = 0; at < text.size(); at += step) parser.Push(text.substr(at, step));
  parser.Finish();
  return AnswerJson(parser.answer());
}

void RunParse(const Options& o) {
  const ChatParserOptions options{o.starts_in_reasoning, !o.no_tools};
  if (!o.jsonl) {
    Print(ToText(Parse(ReadInput(), options, o.split)));
    return;
  }
  ForEachJsonLine([&](const Json& json, const std::string& where) {
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
      Throw(ErrorKind::kInvalidArgument, where + ": found no text, wanted an object with a string \"text\"");
    }
    const ChatParserOptions of_line{ReadFlag(json, "starts_in_reasoning", options.starts_in_reasoning, where),
                                    ReadFlag(json, "tools_offered", options.tools_offered, where)};
    Print(ToText(Parse(json["text"].get_ref<const std::string&>(), of_line, o.split)));
  });
}

}  // namespace

void AddParseCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("parse", "A model's answer -> content, thought and tool calls");
  command.add_flag("--jsonl", o->jsonl, "Read one {\"text\", \"starts_in_reasoning\", \"tools_offered\"} a line");
  command.add_option("--split", o->split, "Feed the parser N bytes at a time; the result is the same; 0: all at once")
      ->type_name("N")
      ->check(IntegerIn(0, std::numeric_limits<int64_t>::max()));
  command.add_flag("--starts-in-reasoning", o->starts_in_reasoning, "The prompt ended inside the thought channel");
  command.add_flag("--no-tools", o->no_tools, "No tools were offered: the markers of calls are text");
  command.footer(
      "Reads the answer, with its special tokens, from standard input.\n"
      "Example:\n"
      "  echo -n '<|tool_call>call:f{a:1}<tool_call|>' | lapidary parse");
  command.callback([&line, o] { line.run = [o] { RunParse(*o); }; });
}

}  // namespace lapidary
