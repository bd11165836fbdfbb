#include <iostream>

#include "base/error.h"
#include "chat/chat_template.h"
#include "cli/chat_json.h"
#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cli/terminal.h"

namespace lapidary {
namespace {

struct Options {
  ModelOptions model;
  std::string variant;  // empty: the model's
  bool jsonl = false;
};

// The model folder is looked at only when no variant is named.
class Variant {
 public:
  explicit Variant(const Options& options) : options_(options) {
    if (!options.variant.empty()) variant_ = ChatVariantOf(options.variant, "--variant");
  }

  ChatVariant Get() {
    if (!variant_) variant_ = ChatVariantOfModel(options_.model.folder);
    return *variant_;
  }

 private:
  const Options& options_;
  std::optional<ChatVariant> variant_;
};

std::string Render(std::string_view text, const std::string& where, Variant& otherwise) {
  const OrderedJson json = ParseOrderedJson(text, where);
  const std::optional<ChatVariant> variant = RequestedChatVariant(json, where);
  return ChatTemplate(variant ? *variant : otherwise.Get()).Render(ReadChatRequest(json, where)).Text();
}

void RunTemplate(const Options& o) {
  Variant variant(o);
  if (!o.jsonl) {
    Print(Render(ReadInput(), "standard input", variant));
    return;
  }
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json result;
    try {
      result = Render(line, "line " + std::to_string(number), variant);
    } catch (const Error& error) {
      result = {{"error", error.what()}};
    }
    Print(ToText(result));
  }
}

}  // namespace

void AddTemplateCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("template", "Chat messages -> the prompt that the model gets");
  AddModelOptions(command, o->model, line.environment);
  command.add_option("--variant", o->variant, "small (E2B, E4B) or large (12B and up); default: the model folder's")
      ->check(CLI::IsMember({"small", "large"}));
  command.add_flag("--jsonl", o->jsonl, "Read one JSON object a line, write one JSON string, or {\"error\"}, a line");
  command.footer(
      "Reads {\"messages\", \"tools\", \"enable_thinking\", \"add_generation_prompt\", \"preserve_thinking\", "
      "\"variant\"}\n"
      "from standard input; all but messages may be left out.\n"
      "Example:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | lapidary template");
  command.callback([&line, o] { line.run = [o] { RunTemplate(*o); }; });
}

}  // namespace lapidary
