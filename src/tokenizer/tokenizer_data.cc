#include "tokenizer/tokenizer_data.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace lapidary {
namespace {

[[noreturn]] void Corrupt(const std::string& where, const std::string& what) {
  Throw(ErrorKind::kCorruptFile, where + ": " + what);
}

constexpr std::array<char, 256> kBytes = [] {
  std::array<char, 256> bytes = {};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}();

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte that a text of the form <0xXX> stands for, or -1.
int ByteOf(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

// One more than the largest id. Gaps are allowed, but not so many that tables by id outgrow the file.
int32_t IdLimit(const TokenizerJson& json, const std::string& where) {
  constexpr size_t kGaps = 65536;
  int32_t largest = -1;
  for (const RawToken& token : json.vocabulary) largest = std::max(largest, token.id);
  for (const AddedToken& token : json.added_tokens) largest = std::max(largest, token.id);
  const size_t count = json.vocabulary.size() + json.added_tokens.size();
  if (json.vocabulary.empty()) Corrupt(where, "model.vocab: found no token");
  if (static_cast<size_t>(largest) > 2 * count + kGaps) {
    Corrupt(where, "found id " + std::to_string(largest) + " among " + std::to_string(count) +
                       " tokens, wanted at most " + std::to_string(2 * count + kGaps));
  }
  return largest + 1;
}

Vocabulary BuildVocabulary(const TokenizerJson& json, const std::string& where) {
  constexpr size_t kLimitBytes = size_t{1} << 30;
  size_t bytes = 0;
  for (const RawToken& token : json.vocabulary) bytes += token.text.size();
  if (bytes > kLimitBytes) Corrupt(where, "model.vocab: found more than 1 GiB of text");
  Vocabulary vocabulary(json.vocabulary.size(), bytes, IdLimit(json, where));
  for (const RawToken& token : json.vocabulary) {
    const auto result = vocabulary.Add(token.text, token.hash, token.id);
    if (result == Vocabulary::AddResult::kAdded) continue;
    const bool text_taken = result == Vocabulary::AddResult::kTextTaken;
    Corrupt(where, "model.vocab: found " + (text_taken ? Quoted(token.text) : "id " + std::to_string(token.id)) +
                       " twice, wanted texts and ids that are all different");
  }
  return vocabulary;
}

BpeOptions BuildOptions(const TokenizerJson& json, const Vocabulary& vocabulary, const std::string& where) {
  BpeOptions options;
  options.fuse_unknown = json.fuse_unknown;
  options.ignore_merges = json.ignore_merges;
  if (json.byte_fallback) {
    options.byte_ids.emplace();
    for (unsigned byte = 0; byte < 256; ++byte) {
      char text[8];
      std::snprintf(text, sizeof(text), "<0x%02X>", byte);
      const int32_t id = vocabulary.Find(text);
      if (id < 0)
        Corrupt(where, std::string("model.vocab: found byte_fallback but no ") + text + ", wanted all 256 bytes");
      (*options.byte_ids)[byte] = id;
    }
  } else if (json.unknown_token) {
    const int32_t id = vocabulary.Find(*json.unknown_token);
    if (id < 0)
      Corrupt(where, "model.unk_token: found " + Quoted(*json.unknown_token) + ", wanted a text of model.vocab");
    options.unknown_id = id;
  }
  return options;
}

// Resolves the texts of merges to ids, in blocks so that the look-ups of one block wait for memory together.
class MergeResolver {
 public:
  MergeResolver(const TokenizerJson& json, const Vocabulary& vocabulary, const std::string& where)
      : merges_(json.merges), vocabulary_(vocabulary), where_(where) {}

  void AddAll(BpeModel& bpe) {
    for (size_t begin = 0; begin < merges_.size(); begin += kBlock) {
      AddBlock(bpe, begin, std::min(begin + kBlock, merges_.size()));
    }
  }

 private:
  static constexpr size_t kBlock = 64;

  void AddBlock(BpeModel& bpe, size_t begin, size_t end) {
    joined_.clear();
    for (size_t i = begin; i < end; ++i) {
      const RawMerge& merge = merges_[i];
      vocabulary_.Prefetch(merge.left_hash);
      vocabulary_.Prefetch(merge.right_hash);
      const size_t at = joined_.size();
      joined_.append(merge.left).append(merge.right);
      hashes_[i - begin] = HashText(std::string_view(joined_).substr(at));
      vocabulary_.Prefetch(hashes_[i - begin]);
    }
    size_t at = 0;
    for (size_t i = begin; i < end; ++i) {
      const RawMerge& merge = merges_[i];
      const std::string_view joined = std::string_view(joined_).substr(at, merge.left.size() + merge.right.size());
      at += joined.size();
      const int32_t left = FindOrThrow(merge.left, merge.left_hash, i);
      const int32_t right = FindOrThrow(merge.right, merge.right_hash, i);
      bpe.AddMerge(left, right, {static_cast<uint32_t>(i), FindOrThrow(joined, hashes_[i - begin], i)});
    }
  }

  int32_t FindOrThrow(std::string_view text, uint32_t hash, size_t rank) const {
    const int32_t id = vocabulary_.Find(text, hash);
    if (id < 0) {
      Corrupt(where_, "model.merges: number " + std::to_string(rank) + ": found " + Quoted(text) +
                          ", wanted a text of model.vocab");
    }
    return id;
  }

  const std::vector<RawMerge>& merges_;
  const Vocabulary& vocabulary_;
  const std::string& where_;
  std::string joined_;  // the results' texts of one block
  std::array<uint32_t, kBlock> hashes_ = {};
};

std::vector<AddedToken> Matched(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> matched;
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    matched.push_back(token);
    if (normalized) matched.back().content = MarkSpaces(token.content);
  }
  return matched;
}

}  // namespace

Tokenizer::Data::Data(Vocabulary model_tokens, size_t merges, const BpeOptions& options,
                      std::vector<AddedToken> added_tokens)
    : vocabulary(std::move(model_tokens)),
      bpe(vocabulary, merges, options),
      added(std::move(added_tokens)),
      raw_matcher(Matched(added, false)),
      normalized_matcher(Matched(added, true)) {}

std::unique_ptr<Tokenizer::Data> Tokenizer::Data::Build(const TokenizerJson& json, const std::string& where) {
  Vocabulary vocabulary = BuildVocabulary(json, where);
  const BpeOptions options = BuildOptions(json, vocabulary, where);
  auto data = std::make_unique<Data>(std::move(vocabulary), json.merges.size(), options, json.added_tokens);
  MergeResolver(json, data->vocabulary, where).AddAll(data->bpe);
  data->IndexPieces();
  data->IndexAdded(where);
  const int32_t bos = data->Find(json.bos_token.value_or("<bos>"));
  if (bos < 0 && json.bos_token) {
    Corrupt(where, "post_processor: found " + Quoted(*json.bos_token) + ", wanted a token of this file");
  }
  if (bos >= 0) data->bos_id = bos;
  return data;
}

int32_t Tokenizer::Data::Find(std::string_view text) const {
  const auto found = added_ids.find(text);
  return found != added_ids.end() ? found->second : vocabulary.Find(text);
}

void Tokenizer::Data::IndexPieces() {
  tokens.resize(static_cast<size_t>(vocabulary.id_limit()));
  size_t bytes = 0;
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) bytes += vocabulary.Text(id).size();
  for (const AddedToken& token : added) bytes += token.content.size();
  unmarked.reserve(bytes);  // never grows beyond: pieces point into it
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) SetPiece(id, vocabulary.Text(id));
}

void Tokenizer::Data::SetPiece(int32_t id, std::string_view text) {
  Token& token = tokens[static_cast<size_t>(id)];
  const int byte = ByteOf(text);
  token.is_byte = byte >= 0;
  if (token.is_byte) {
    token.piece = {&kBytes[static_cast<size_t>(byte)], 1};
  } else if (text.find(kSpaceMarkUtf8) == std::string_view::npos) {
    token.piece = text;
  } else {
    const size_t begin = unmarked.size();
    unmarked += UnmarkSpaces(text);
    token.piece = std::string_view(unmarked).substr(begin);
  }
}

void Tokenizer::Data::IndexAdded(const std::string& where) {
  std::vector<bool> taken(tokens.size());
  for (const AddedToken& token : added) {
    const auto id = static_cast<size_t>(token.id);
    const int32_t in_model = vocabulary.Find(token.content);
    const bool consistent = in_model >= 0 ? in_model == token.id : !vocabulary.Contains(token.id);
    if (!consistent || taken[id] || !added_ids.emplace(token.content, token.id).second) {
      Corrupt(where, "added_tokens: found " + Quoted(token.content) + " as id " + std::to_string(token.id) +
                         ", wanted each text and id once and as model.vocab has them");
    }
    taken[id] = true;
    SetPiece(token.id, token.content);
    tokens[id].special = token.special;
  }
}

}  // namespace lapidary
