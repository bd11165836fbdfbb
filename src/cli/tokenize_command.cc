#include "base/error.h"
#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cli/lines.h"
#include "cli/parse_values.h"
#include "cli/terminal.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {
namespace {

// What both directions share: a value given as an option, on standard input, or one a line.
struct Options {
  ModelOptions model;
  std::optional<std::string> value;
  bool jsonl = false;
};

struct TokenizeOptions : Options {
  bool bos = false, no_special = false;
};

struct DetokenizeOptions : Options {
  bool skip_special = false;
};

Tokenizer LoadTokenizer(const Options& o, const std::string& command, const std::string& option) {
  if (o.value && o.jsonl) throw UsageError(command + ": found " + option + " and --jsonl, wanted one of them");
  return Tokenizer::Load(o.model.folder + "/tokenizer.json");
}

void RunTokenize(const TokenizeOptions& o) {
  const Tokenizer tokenizer = LoadTokenizer(o, "tokenize", "--text");
  const auto print = [&](std::string_view text) {
    Print(ToText(tokenizer.Encode(text, {.add_bos = o.bos, .match_special = !o.no_special})));
  };
  if (!o.jsonl) return print(o.value ? *o.value : ReadInput());
  ForEachJsonLine([&](const Json& json, const std::string& where) {
    if (!json.is_string()) {
      Throw(ErrorKind::kInvalidArgument, where + ": found " + json.type_name() + ", wanted a JSON string");
    }
    print(json.get_ref<const std::string&>());
  });
}

void RunDetokenize(const DetokenizeOptions& o) {
  const Tokenizer tokenizer = LoadTokenizer(o, "detokenize", "--ids");
  if (!o.jsonl) {
    const auto ids = o.value ? ReadIds(*o.value, "--ids") : ParseIds(ReadInput(), "standard input");
    Print(tokenizer.Decode(ids, o.skip_special));
    if (OutputIsTerminal()) Print("\n");
    return;
  }
  ForEachJsonLine([&](const Json& json, const std::string& where) {
    Print(ToText(tokenizer.Decode(ParseIds(json.dump(), where), o.skip_special)));
  });
}

}  // namespace

void AddTokenizeCommand(CommandLine& line) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App& command = *line.app.add_subcommand("tokenize", "Text -> JSON array of token ids");
  AddModelOptions(command, o->model, line.environment);
  command.add_option("--text", o->value, "The text; without it standard input is read, byte for byte")
      ->type_name("TEXT");
  command.add_flag("--bos", o->bos, "Begin with the <bos> token");
  command.add_flag("--no-special", o->no_special, "Treat special tokens in the text as ordinary text");
  command.add_flag("--jsonl", o->jsonl, "Read one JSON string a line, write one array a line");
  command.footer(
      "Examples:\n"
      "  lapidary tokenize -m DIR --text \"Hello, world!\"\n"
      "  lapidary tokenize -m DIR --bos < story.txt");
  command.callback([&line, o] { line.run = [o] { RunTokenize(*o); }; });
}

void AddDetokenizeCommand(CommandLine& line) {
  auto o = std::make_shared<DetokenizeOptions>();
  CLI::App& command = *line.app.add_subcommand("detokenize", "Token ids -> text");
  AddModelOptions(command, o->model, line.environment);
  command.add_option("--ids", o->value, "Token ids, or @FILE with them; without it they are read from standard input")
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
