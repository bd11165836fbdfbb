#include "generation/text_generator.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <utility>

#include "base/error.h"
#include "generation/stop_filter.h"

namespace lapidary {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::optional<Tokenizer> LoadTokenizer(const std::string& folder, int64_t vocab) {
  const std::string path = folder + "/tokenizer.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  Tokenizer tokenizer = Tokenizer::Load(path);
  if (tokenizer.size() > vocab) {
    Throw(ErrorKind::kCorruptFile, path + ": found " + std::to_string(tokenizer.size()) +
                                       " tokens, wanted at most the model's vocab_size of " + std::to_string(vocab));
  }
  return tokenizer;
}

uint64_t FreshSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

double ResolveTemperature(const GenerateOptions& options, const GenerationConfig& defaults) {
  if (options.temperature) return *options.temperature;
  if (!defaults.do_sample.value_or(true)) return 0;
  return defaults.temperature.value_or(defaults.do_sample ? 1.0 : 0.0);
}

// Token ids of one answer -> its text, half characters and beginnings of stop texts held back.
class AnswerText {
 public:
  AnswerText(const Tokenizer* tokenizer, const std::vector<std::string>& stops) : stops_(stops) {
    if (tokenizer) decoder_.emplace(*tokenizer);
    known_ids_ = tokenizer ? tokenizer->size() : 0;
  }

  // An id that the tokenizer does not know, as tables may be padded, has no text.
  std::string Push(int32_t id) { return id < known_ids_ ? stops_.Push(decoder_->Push(id)) : std::string(); }
  std::string Finish() {
    if (!decoder_ || stopped()) return {};
    std::string rest = stops_.Push(decoder_->Finish());
    return stopped() ? rest : rest + stops_.Finish();
  }
  bool stopped() const { return stops_.stopped(); }

 private:
  std::optional<IncrementalDecoder> decoder_;
  StopFilter stops_;
  int32_t known_ids_ = 0;
};

// One answer from Add to its end. Whatever way it ends, the engine is rid of the sequence.
class Run {
 public:
  Run(Engine& engine, const Tokenizer* tokenizer, const GenerateOptions& options, const TextGenerator::OnText& on_text)
      : engine_(engine), options_(options), on_text_(on_text), text_(tokenizer, options.stop) {}
  ~Run() { engine_.Cancel(id_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  GenerateResult Finish(SequenceRequest request) {
    result_.prompt_ids = request.prompt;
    result_.timings.prefill_tokens = static_cast<int64_t>(request.prompt.size());
    id_ = engine_.Add(std::move(request));
    while (result_.finish == FinishReason::kNone) Step();
    // A cancelled text shows what it has.
    Emit(text_.Finish());
    return std::move(result_);
  }

 private:
  void Step() {
    const Clock::time_point start = Clock::now();
    const std::span<const SequenceUpdate> updates = engine_.Step();
    const double seconds = SecondsSince(start);
    (decoding_ ? result_.timings.decode_s : result_.timings.prefill_s) += seconds;
    for (const SequenceUpdate& update : updates) {
      if (update.id == id_) Take(update);
    }
    const auto prompt = static_cast<int64_t>(result_.prompt_ids.size());
    const int64_t cached = decoding_ ? prompt : engine_.CachedTokens(id_);
    if (options_.on_step && !options_.on_step(cached, prompt) && result_.finish == FinishReason::kNone) {
      result_.finish = FinishReason::kCancelled;
    }
  }

  void Take(const SequenceUpdate& update) {
    const size_t before = result_.ids.size();
    std::string piece;
    // Tokens behind the one that completes a stop text came from a draft: without speculation they would not be.
    for (size_t i = 0; i < update.tokens.size() && !text_.stopped(); ++i) {
      result_.ids.push_back(update.tokens[i]);
      piece += text_.Push(update.tokens[i]);
    }
    if (decoding_) result_.timings.decode_tokens += static_cast<int64_t>(result_.ids.size() - before);
    decoding_ = true;
    result_.speculation = engine_.Stats(id_);
    result_.finish = text_.stopped() ? FinishReason::kStop : update.finish;
    if (!Emit(piece) && result_.finish == FinishReason::kNone) result_.finish = FinishReason::kCancelled;
  }

  bool Emit(const std::string& piece) {
    result_.text += piece;
    return piece.empty() || !on_text_ || on_text_(piece);
  }

  Engine& engine_;
  const GenerateOptions& options_;
  const TextGenerator::OnText& on_text_;
  AnswerText text_;
  GenerateResult result_;
  SequenceId id_ = 0;
  bool decoding_ = false;  // the prompt is done
};

}  // namespace

SamplingParams ResolveSampling(const GenerateOptions& options, const GenerationConfig& defaults, int64_t vocab) {
  SamplingParams params;
  params.temperature = ResolveTemperature(options, defaults);
  params.top_k = options.top_k ? *options.top_k : defaults.top_k.value_or(params.top_k);
  params.top_p = options.top_p ? *options.top_p : defaults.top_p.value_or(params.top_p);
  params.min_p = options.min_p ? *options.min_p : defaults.min_p.value_or(params.min_p);
  params.repetition_penalty = options.repetition_penalty
                                  ? *options.repetition_penalty
                                  : defaults.repetition_penalty.value_or(params.repetition_penalty);
  params.presence_penalty = options.presence_penalty;
  params.frequency_penalty = options.frequency_penalty;
  params.logit_bias = options.logit_bias;
  for (const int32_t id : defaults.suppress_tokens) {
    if (id >= 0 && id < vocab) params.suppress_tokens.push_back(id);
  }
  params.seed = options.seed ? *options.seed : FreshSeed();
  return params;
}

TextGenerator::TextGenerator(const std::string& folder, Backend& backend, const EngineOptions& options)
    : backend_(backend),
      folder_(folder),
      tokenizer_(LoadTokenizer(folder, backend.plan().vocab())),
      defaults_(LoadGenerationConfig(folder)),
      engine_(backend, options) {
  for (int32_t id = 0; tokenizer_ && id < tokenizer_->size(); ++id) {
    longest_piece_bytes_ = std::max(longest_piece_bytes_, tokenizer_->Piece(id).size());
  }
}

TextGenerator::~TextGenerator() = default;

SequenceRequest TextGenerator::MakeRequest(std::vector<int32_t> prompt, const GenerateOptions& options) const {
  SequenceRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = options.max_new_tokens;
  if (!options.ignore_eos) request.eos_ids = EosTokenIds(backend_.plan().config, defaults_);
  request.sampling = ResolveSampling(options, defaults_, backend_.plan().vocab());
  request.speculation = options.speculation;
  return request;
}

// A text so long that it cannot fit, whatever its tokens are, is refused before it is cut into tokens.
void TextGenerator::CheckLength(std::string_view prompt) const {
  if (prompt.empty()) Throw(ErrorKind::kInvalidArgument, "prompt: found an empty text, wanted at least one character");
  const auto context = static_cast<size_t>(engine_.options().max_context);
  const size_t least = prompt.size() / (3 * longest_piece_bytes_);  // a space may be written as U+2581, 3 bytes
  if (least < context) return;
  Throw(ErrorKind::kInvalidArgument,
        "prompt: found " + std::to_string(prompt.size()) + " bytes of text, which is at least " +
            std::to_string(least) + " tokens, wanted fewer than the context of " + std::to_string(context) + " tokens");
}

GenerateResult TextGenerator::Generate(std::string_view prompt, const GenerateOptions& options, const OnText& on_text) {
  if (!tokenizer_) {
    Throw(ErrorKind::kNotFound, folder_ + "/tokenizer.json: found none, wanted one to read a text prompt");
  }
  CheckLength(prompt);
  std::vector<int32_t> ids = tokenizer_->Encode(prompt);
  std::optional<int32_t> bos = tokenizer_->bos_id();
  if (!bos) bos = backend_.plan().config.bos_token_id;
  if (bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return GenerateFromIds(std::move(ids), options, on_text);
}

GenerateResult TextGenerator::GenerateFromIds(std::vector<int32_t> prompt, const GenerateOptions& options,
                                              const OnText& on_text) {
  if (!tokenizer_ && !options.stop.empty()) {
    Throw(ErrorKind::kNotFound, folder_ + "/tokenizer.json: found none, wanted one to look for stop texts");
  }
  return Run(engine_, tokenizer(), options, on_text).Finish(MakeRequest(std::move(prompt), options));
}

}  // namespace lapidary
