#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <limits>

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cli/parse_values.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "generation/text_generator.h"

namespace lapidary {
namespace {

struct Options {
  ModelOptions model;
  GenerateOptions generate{.max_new_tokens = 256};
  std::optional<std::string> prompt, prompt_file, prompt_ids;
  std::vector<std::string> logit_bias;
  std::string speculate = "none";
  int64_t prefill_chunk = 0;
  bool json = false;
};

void AddAnswerOptions(CLI::App& command, Options& o) {
  GenerateOptions& g = o.generate;
  command
      .add_option("-n,--max-tokens", g.max_new_tokens,
                  "Tokens of the answer at most (default 256); -1: until the context is full")
      ->type_name("N")
      ->check(IntegerIn(-1, std::numeric_limits<int64_t>::max()) &
              NumberThat([](double n) { return n != 0; }, "not 0"));
  AddSamplingOptions(command, g);
  command.add_option("--logit-bias", o.logit_bias, "Adds V to the logit of token ID; repeatable")
      ->type_name("ID=V")
      ->allow_extra_args(false);
  command.add_option("--stop", g.stop, "The answer ends before this text; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->check(NotEmpty("a text"));
  command.add_flag("--ignore-eos", g.ignore_eos, "Go on after an end-of-text token");
}

struct Prompt {
  std::optional<std::vector<int32_t>> ids;
  std::string text;  // without ids
};

Prompt ReadPrompt(const Options& o) {
  const int given = o.prompt.has_value() + o.prompt_file.has_value() + o.prompt_ids.has_value();
  if (given > 1)
    throw UsageError("generate: found more than one of PROMPT, --prompt-file and --prompt-ids, wanted one");
  if (given == 0 && InputIsTerminal()) {
    throw UsageError("generate: found no prompt, wanted PROMPT, --prompt-file, --prompt-ids or text on standard input");
  }
  if (o.prompt_ids) return {ReadIds(*o.prompt_ids, "--prompt-ids"), ""};
  if (o.prompt) return {std::nullopt, *o.prompt};
  return {std::nullopt, o.prompt_file ? ReadStream(*o.prompt_file) : ReadInput()};
}

const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

double Rate(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0.0; }

Json ResultJson(const GenerateResult& result, double load_s) {
  const GenerateTimings& t = result.timings;
  return {{"prompt_ids", result.prompt_ids},
          {"ids", result.ids},
          {"text", result.text},
          {"finish_reason", NameOf(result.finish)},
          {"timings",
           {{"load_s", load_s},
            {"prefill_s", t.prefill_s},
            {"decode_s", t.decode_s},
            {"prefill_tokens_per_s", Rate(t.prefill_tokens, t.prefill_s)},
            {"decode_tokens_per_s", Rate(t.decode_tokens, t.decode_s)}}},
          {"speculation",
           {{"drafted", result.speculation.drafted},
            {"accepted", result.speculation.accepted},
            {"steps", result.speculation.steps}}}};
}

// The end of a streamed answer. Without a tokenizer there is no text: the ids are shown instead.
void PrintEnd(const GenerateResult& result, bool has_text) {
  if (!has_text) {
    std::string list;
    for (const int32_t id : result.ids) list += (list.empty() ? "" : ",") + std::to_string(id);
    Print(list);
  }
  Print("\n");
}

void LogTimings(const GenerateResult& result, double load_s) {
  const GenerateTimings& t = result.timings;
  spdlog::info("load {:.2f} s, prompt {} tokens at {:.1f}/s, answer {} tokens at {:.1f}/s, drafts {}/{} accepted",
               load_s, t.prefill_tokens, Rate(t.prefill_tokens, t.prefill_s), result.ids.size(),
               Rate(t.decode_tokens, t.decode_s), result.speculation.accepted, result.speculation.drafted);
}

GenerateOptions RequestOptions(const Options& o) {
  GenerateOptions options = o.generate;
  for (const std::string& bias : o.logit_bias) options.logit_bias.push_back(ParseLogitBias(bias));
  options.speculation = o.speculate == "ngram" ? Speculation::kNgram : Speculation::kNone;
  return options;
}

// Streams to standard output unless the result is printed as JSON; shows progress while a long prompt is read.
GenerateResult Answer(TextGenerator& generator, const Options& o, const Prompt& prompt) {
  GenerateOptions options = RequestOptions(o);
  ProgressBar bar(ProgressUnit::kTokens);
  const ProgressFn progress = bar.function();
  options.on_step = [&](int64_t cached, int64_t prompt_tokens) {
    if (Interrupted()) return false;
    if (cached < prompt_tokens) progress("prompt", static_cast<uint64_t>(cached), static_cast<uint64_t>(prompt_tokens));
    return true;
  };
  const TextGenerator::OnText on_text = [&](std::string_view piece) {
    bar.Clear();
    if (!o.json) Print(piece);
    return true;
  };
  return prompt.ids ? generator.GenerateFromIds(*prompt.ids, options, on_text)
                    : generator.Generate(prompt.text, options, on_text);
}

void RunGenerate(const Options& o, const CliEnvironment& environment) {
  const Prompt prompt = ReadPrompt(o);
  RequestOptions(o);  // values that cannot be are refused before a large model is loaded
  CatchInterrupt();
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<Backend> backend = LoadBackend(environment, o.model);
  TextGenerator generator(o.model.folder, *backend,
                          {.max_context = o.model.ctx,
                           .max_sequences = 1,
                           .step_tokens = PrefillChunk(o.prefill_chunk, backend->PreferredStepTokens()),
                           .kv_type = o.model.kv_dtype(),
                           .prefix_cache = false});
  const double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const GenerateResult result = Answer(generator, o, prompt);
  LogTimings(result, load_s);
  if (o.json) {
    Print(ToText(ResultJson(result, load_s)));
  } else {
    PrintEnd(result, generator.tokenizer() != nullptr);
  }
}

}  // namespace

void AddGenerateCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("generate", "Completes a text and streams it");
  command.add_option("prompt", o->prompt, "Text to complete; without one it is read from standard input")
      ->type_name("PROMPT");
  command.add_option("--prompt-file", o->prompt_file, "File with the text, taken byte for byte")->type_name("FILE");
  command.add_option("--prompt-ids", o->prompt_ids, "Token ids, taken as they are (no bos added), or @FILE with them")
      ->type_name("IDS");
  AddAnswerOptions(command, *o);
  command
      .add_option("--speculate", o->speculate, "none, or ngram: drafts from the text so far; the answer is the same")
      ->check(CLI::IsMember({"none", "ngram"}));
  AddPrefillChunkOption(command, o->prefill_chunk);
  command.add_flag("--json", o->json, "Print one JSON object instead of the text");
  AddModelOptions(command, o->model, line.environment);
  command.footer(
      "Sampling options that are not given come from the model's generation_config.json, else greedy.\n"
      "Ctrl-C ends the answer where it is, with status 0; a second one ends the program.\n"
      "finish_reason of --json: stop (an end token or a --stop text), length (-n or the context), cancelled (Ctrl-C).\n"
      "Examples:\n"
      "  lapidary generate \"The capital of France is\"\n"
      "  lapidary generate -m DIR -n 200 --temp 0.8 --top-p 0.95 --seed 7 --stop \"\\n\\n\" \"Once upon a time\"\n"
      "  lapidary generate -m DIR --prompt-ids 2,651,5891 -n 16 --temp 0 --json");
  command.callback([&line, o] { line.run = [&line, o] { RunGenerate(*o, line.environment); }; });
}

}  // namespace lapidary
