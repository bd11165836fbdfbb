#include "generation/text_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace lapidary {
namespace {

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

}  // namespace

TextModel::TextModel(const std::string& folder, const ModelPlan& plan)
    : folder_(folder),
      config_(plan.config),
      vocab_(plan.vocab()),
      tokenizer_(LoadTokenizer(folder, vocab_)),
      defaults_(LoadGenerationConfig(folder)) {
  for (int32_t id = 0; tokenizer_ && id < tokenizer_->size(); ++id) {
    longest_piece_bytes_ = std::max(longest_piece_bytes_, tokenizer_->Piece(id).size());
  }
}

const Tokenizer& TextModel::RequireTokenizer(const char* wanted_for) const {
  if (!tokenizer_) {
    Throw(ErrorKind::kNotFound, folder_ + "/tokenizer.json: found none, wanted one " + wanted_for);
  }
  return *tokenizer_;
}

void TextModel::CheckLength(std::string_view prompt, int64_t context) const {
  if (prompt.empty()) Throw(ErrorKind::kInvalidArgument, "prompt: found an empty text, wanted at least one character");
  const size_t least = prompt.size() / (3 * longest_piece_bytes_);  // a space may be written as U+2581, 3 bytes
  if (least < static_cast<size_t>(context)) return;
  Throw(ErrorKind::kInvalidArgument,
        "prompt: found " + std::to_string(prompt.size()) + " bytes of text, which is at least " +
            std::to_string(least) + " tokens, wanted fewer than the context of " + std::to_string(context) + " tokens");
}

std::vector<int32_t> TextModel::EncodePrompt(std::string_view text, int64_t context) const {
  const Tokenizer& tokenizer = RequireTokenizer("to read a text prompt");
  CheckLength(text, context);
  std::vector<int32_t> ids = tokenizer.Encode(text);
  std::optional<int32_t> bos = tokenizer.bos_id();
  if (!bos) bos = config_.bos_token_id;
  if (bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

SequenceRequest TextModel::MakeRequest(std::vector<int32_t> prompt, const GenerateOptions& options) const {
  if (!options.stop.empty()) RequireTokenizer("to look for stop texts");
  SequenceRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = options.max_new_tokens;
  if (!options.ignore_eos) request.eos_ids = EosTokenIds(config_, defaults_);
  request.sampling = ResolveSampling(options, defaults_, vocab_);
  request.speculation = options.speculation;
  return request;
}

}  // namespace lapidary
