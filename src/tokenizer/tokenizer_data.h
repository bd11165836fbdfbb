#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace lapidary {

struct TokenizerJson;

// Immutable after Build; never moved, since its parts point at each other.
struct Tokenizer::Data {
  // Throws Error kCorruptFile, naming `where`, if the parts contradict each other.
  static std::unique_ptr<Data> Build(const TokenizerJson& json, const std::string& where);

  Data(Vocabulary tokens, size_t merges, const BpeOptions& options, std::vector<AddedToken> added);
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  // The id of an added token or one of the model's, or -1.
  int32_t Find(std::string_view text) const;

  struct Token {
    std::string_view piece;  // Tokenizer::Piece: in `vocabulary`, `added`, `unmarked` or a table of bytes
    bool special = false;
    bool is_byte = false;  // <0xXX>: part of a run that is UTF-8 only as a whole
  };

  Vocabulary vocabulary;  // the model's own tokens
  BpeModel bpe;
  std::vector<AddedToken> added;
  std::unordered_map<std::string_view, int32_t> added_ids;  // by content
  AddedTokenMatcher raw_matcher;                            // for the text as it comes
  AddedTokenMatcher normalized_matcher;                     // for text with U+2581 for every space
  std::vector<Token> tokens;                                // [id]
  std::string unmarked;                                     // the pieces of tokens with U+2581, one after the other
  std::optional<int32_t> bos_id;

 private:
  void IndexPieces();
  void IndexAdded(const std::string& where);
  void SetPiece(int32_t id, std::string_view text);
};

}  // namespace lapidary
