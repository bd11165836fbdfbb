#include "tokenizer/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/tokenizer_data.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace lapidary {
namespace {

const Tokenizer::Data::Token& At(const Tokenizer::Data& data, int32_t id) {
  if (id < 0 || static_cast<size_t>(id) >= data.tokens.size()) {
    Throw(ErrorKind::kInvalidArgument,
          "token id: found " + std::to_string(id) + ", wanted [0, " + std::to_string(data.tokens.size()) + ")");
  }
  return data.tokens[static_cast<size_t>(id)];
}

// Text between raw added tokens.
void EncodeStretch(const Tokenizer::Data& data, std::string_view text, bool match_special, std::vector<int32_t>& ids) {
  if (data.normalized_matcher.empty()) {
    data.bpe.Encode(text, ids);
    return;
  }
  const std::string normalized = MarkSpaces(text);
  for (const Stretch& stretch : data.normalized_matcher.Split(normalized, match_special)) {
    if (stretch.id >= 0) {
      ids.push_back(stretch.id);
    } else {
      data.bpe.Encode(stretch.text, ids);
    }
  }
}

// Appends a run of byte tokens' bytes.
void AppendRun(std::string& text, std::string& run) {
  if (IsValidUtf8(run)) {
    text += run;
  } else {
    for (size_t i = 0; i < run.size(); ++i) text += kReplacementUtf8;
  }
  run.clear();
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::Load(const std::string& path) {
  const MappedFile file = MappedFile::Open(path);
  return Parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

Tokenizer Tokenizer::Parse(std::string_view json_text, const std::string& where) {
  return Tokenizer(Data::Build(TokenizerJson::Parse(json_text, where), where));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  constexpr size_t kLimitBytes = size_t{1} << 31;
  if (text.size() >= kLimitBytes) {
    Throw(ErrorKind::kInvalidArgument, "text: found " + std::to_string(text.size()) + " bytes, wanted less than 2 GiB");
  }
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);
  if (options.add_bos && data_->bos_id) ids.push_back(*data_->bos_id);
  for (const Stretch& stretch : data_->raw_matcher.Split(text, options.match_special)) {
    if (stretch.id >= 0) {
      ids.push_back(stretch.id);
    } else {
      EncodeStretch(*data_, stretch.text, options.match_special, ids);
    }
  }
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  std::string run;
  for (const int32_t id : ids) {
    const Data::Token& token = At(*data_, id);
    if (skip_special && token.special) continue;
    if (token.is_byte) {
      run += token.piece;
      continue;
    }
    if (!run.empty()) AppendRun(text, run);
    text += token.piece;
  }
  AppendRun(text, run);
  return text;
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(data_->tokens.size()); }

std::optional<int32_t> Tokenizer::bos_id() const { return data_->bos_id; }

std::optional<int32_t> Tokenizer::Find(std::string_view token) const {
  const int32_t id = data_->Find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Tokenizer::IsSpecial(int32_t id) const { return At(*data_, id).special; }
bool Tokenizer::IsByte(int32_t id) const { return At(*data_, id).is_byte; }
std::string_view Tokenizer::Piece(int32_t id) const { return At(*data_, id).piece; }

}  // namespace lapidary
