#include "generation/text_generator.h"

#include <chrono>
#include <utility>

#include "generation/answer_text.h"

namespace lapidary {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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

TextGenerator::TextGenerator(const std::string& folder, Backend& backend, const EngineOptions& options)
    : model_(folder, backend.plan()), engine_(backend, options) {}

TextGenerator::~TextGenerator() = default;

GenerateResult TextGenerator::Generate(std::string_view prompt, const GenerateOptions& options, const OnText& on_text) {
  return GenerateFromIds(model_.EncodePrompt(prompt, engine_.options().max_context), options, on_text);
}

GenerateResult TextGenerator::GenerateFromIds(std::vector<int32_t> prompt, const GenerateOptions& options,
                                              const OnText& on_text) {
  SequenceRequest request = model_.MakeRequest(std::move(prompt), options);
  return Run(engine_, tokenizer(), options, on_text).Finish(std::move(request));
}

}  // namespace lapidary
