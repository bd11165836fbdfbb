#include "base/error.h"
#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cli/lines.h"
#include "cli/parse_values.h"
#include "cli/terminal.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {
namespace {

struct Options {
  ModelOptions model;
  std::optional<std::string> ids;
  bool skip_special = false, jsonl = false;
};

void RunDetokenize(const Options& o) {
  if (o.ids && o.jsonl) throw UsageError("detokenize: found --ids and --jsonl, wanted one of them");
  const Tokenizer tokenizer = Tokenizer::Load(o.model.folder + "/tokenizer.json");
  if (!o.jsonl) {
    const auto ids = o.ids ? ReadIds(*o.ids, "--ids") : ParseIds(ReadInput(), "standard input");
    Print(tokenizer.Decode(ids, o.skip_special));
    if (OutputIsTerminal()) Print("\n");
    return;
  }
  ForEachJsonLine([&](const Json& json, const std::string& where) {
    Print(ToText(tokenizer.Decode(ParseIds(json.dump(), where), o.skip_special)));
  });
}

}  // namespace

void AddDetokenizeCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("detokenize", "Token ids -> text");
  AddModelOptions(command, o->model, line.environment);
  command.add_option("--ids", o->ids, "Token ids, or @FILE with them; without it they are read from standard input")
      ->type_name("IDS");
  command.add_flag("--skip-special", o->skip_special, "Leave special tokens out of the text");
  command.add_flag("--jsonl", o->jsonl, "Read one JSON array a line, write one JSON string a line");
  command.footer(
      "Examples:\n"
      "  lapidary detokenize -m DIR --ids 9259,236764,1902,236888\n"
      "  lapidary tokenize -m DIR --text Hello | lapidary detokenize -m DIR");
  command.callback([&line, o] { line.run = [o] { RunDetokenize(*o); }; });
}

}  // namespace lapidary
