#include "base/error.h"
#include "cli/command_line.h"
#include "cli/direct_runner.h"
#include "cli/parse_values.h"
#include "cli/safetensors_writer.h"
#include "cli/terminal.h"

namespace lapidary {
namespace {

struct Options {
  ModelOptions model;
  std::string prompt_ids, output;
  int64_t prefill_chunk = 0;
  bool all = false, taps = false;
};

void CheckPrompt(const std::vector<int32_t>& ids, const Config& config, int64_t ctx) {
  const int64_t context = ctx == 0 ? config.max_position_embeddings : std::min(ctx, config.max_position_embeddings);
  if (ids.empty()) Throw(ErrorKind::kInvalidArgument, "prompt: found no tokens, wanted at least one");
  if (static_cast<int64_t>(ids.size()) > context) {
    Throw(ErrorKind::kInvalidArgument, "prompt: found " + std::to_string(ids.size()) +
                                           " tokens, wanted at most the context of " + std::to_string(context));
  }
  for (const int32_t id : ids) {
    if (id < config.vocab_size) continue;
    Throw(ErrorKind::kInvalidArgument, "prompt: found token id " + std::to_string(id) + ", wanted one in [0, " +
                                           std::to_string(config.vocab_size) + ")");
  }
}

// The tensors of the file in order: logits, hidden.0 .. hidden.L, per_layer_inputs.
std::vector<OutputTensor> OutputTensors(const ModelPlan& plan, int64_t tokens, const Options& o) {
  std::vector<OutputTensor> tensors = {{"logits", {o.all ? tokens : 1, plan.vocab()}}};
  if (!o.taps) return tensors;
  for (size_t i = 0; i <= plan.layers.size(); ++i) {
    tensors.push_back({"hidden." + std::to_string(i), {tokens, plan.hidden()}});
  }
  if (plan.per_layer_width() > 0) {
    tensors.push_back({"per_layer_inputs", {tokens, static_cast<int64_t>(plan.layers.size()), plan.per_layer_width()}});
  }
  return tensors;
}

class TapWriter : public TapSink {
 public:
  TapWriter(SafetensorsWriter& writer, size_t layers) : writer_(writer), layers_(layers) {}

  void OnTap(Tap tap, int layer, std::span<const float> data, int64_t, int64_t width) override {
    const size_t after = static_cast<size_t>(layer + 1);
    size_t tensor = 0;
    switch (tap) {
      case Tap::kEmbedding:
        tensor = 1;
        break;
      case Tap::kLayer:
        if (after == layers_) return;  // the last one is shown after the final norm
        tensor = 1 + after;
        break;
      case Tap::kFinalNorm:
        tensor = 1 + layers_;
        break;
      case Tap::kPerLayerInputs:
        tensor = 2 + layers_;
        break;
      case Tap::kAttention:
        return;
    }
    writer_.Write(tensor, first_row * width, data);
  }

  int64_t first_row = 0;  // position of the step's first row

 private:
  SafetensorsWriter& writer_;
  size_t layers_;
};

void RunLogits(const Options& o, const CliEnvironment& environment) {
  const std::vector<int32_t> ids = ReadIds(o.prompt_ids, "--prompt-ids");
  CatchInterrupt();
  const std::unique_ptr<Backend> backend = LoadBackend(environment, o.model);
  const ModelPlan& plan = backend->plan();
  CheckPrompt(ids, plan.config, o.model.ctx);
  const auto tokens = static_cast<int64_t>(ids.size());
  SafetensorsWriter writer(o.output, OutputTensors(plan, tokens, o));
  TapWriter taps(writer, plan.layers.size());

  const int64_t chunk = std::min(tokens, PrefillChunk(o.prefill_chunk, o.all || o.taps ? 64 : 256));
  DirectRunner runner(*backend, {.beyond = tokens, .step_tokens = chunk}, o.model.kv_dtype());
  ProgressBar bar(ProgressUnit::kTokens);
  const ProgressFn progress = bar.function();
  for (int64_t first = 0; first < tokens; first += chunk) {
    progress("prompt", static_cast<uint64_t>(first), static_cast<uint64_t>(tokens));
    const int64_t rows = std::min(chunk, tokens - first);
    const bool last = first + rows == tokens;
    // The final norm is computed where logits are wanted: with taps that is every row.
    const int64_t logit_rows = o.all || o.taps ? rows : last ? 1 : 0;
    taps.first_row = first;
    const std::span<float> logits =
        runner.Run(0, std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)), logit_rows,
                   o.taps ? &taps : nullptr);
    if (o.all) {
      writer.Write(0, first * plan.vocab(), logits);
    } else if (last) {
      writer.Write(0, 0, logits.last(static_cast<size_t>(plan.vocab())));
    }
  }
  writer.Finish();
}

}  // namespace

void AddLogitsCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("logits", "Writes the logits of a prompt to a safetensors file");
  command.add_option("--prompt-ids", o->prompt_ids, "Token ids, taken as they are, or @FILE with them")
      ->type_name("IDS")
      ->required();
  command.add_option("-o,--output", o->output, "File to write")->type_name("FILE")->required();
  command.add_flag("--all", o->all, "Logits of every position [T, V], not only the last [1, V]");
  command.add_flag("--taps", o->taps,
                   "Also hidden.0 (scaled embedding), hidden.i (after layer i-1), hidden.L (after the "
                   "final norm), each [T, D], and per_layer_inputs [T, L, P]");
  AddPrefillChunkOption(command, o->prefill_chunk);
  AddModelOptions(command, o->model, line.environment);
  command.footer("Example:\n  lapidary logits -m DIR --prompt-ids 2,651,5891 --all --taps -o out.safetensors");
  command.callback([&line, o] { line.run = [&line, o] { RunLogits(*o, line.environment); }; });
}

}  // namespace lapidary
