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
  std::optional<std::string> text;
  bool bos = false, no_special = false, jsonl = false;
};

void RunTokenize(const Options& o) {
  if (o.text && o.jsonl) throw UsageError("tokenize: found --text and --jsonl, wanted one of them");
  const Tokenizer tokenizer = Tokenizer::Load(o.model.folder + "/tokenizer.json");
  const auto encode = [&](std::string_view text) {
    return ToText(tokenizer.Encode(text, {.add_bos = o.bos, .match_special = !o.no_special}));
  };
  if (!o.jsonl) {
    Print(encode(o.text ? *o.text : ReadInput()));
    return;
  }
  ForEachJsonLine([&](const Json& json, const std::string& where) {
    if (!json.is_string()) {
      Throw(ErrorKind::kInvalidArgument, where + ": found " + json.type_name() + ", wanted a JSON string");
    }
    Print(encode(json.get_ref<const std::string&>()));
  });
}

}  // namespace

void AddTokenizeCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("tokenize", "Text -> JSON array of token ids");
  AddModelOptions(command, o->model, line.environment);
  command.add_option("--text", o->text, "The text; without it standard input is read, byte for byte")
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

}  // namespace lapidary
