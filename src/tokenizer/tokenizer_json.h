#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace lapidary {

struct RawToken {
  std::string_view text;
  uint32_t hash;  // HashText(text)
  int32_t id;     // in [0, kMaxTokenId]
};

struct RawMerge {
  std::string_view left;
  std::string_view right;
  uint32_t left_hash;
  uint32_t right_hash;
};

inline constexpr int32_t kMaxTokenId = (1 << 24) - 1;

// What a tokenizer.json says, checked for types and for being of Gemma's kind, but not yet against itself.
struct TokenizerJson {
  // Throws Error kCorruptFile or kUnsupported, naming `where`.
  static TokenizerJson Parse(std::string_view text, const std::string& where);

  std::vector<RawToken> vocabulary;  // the texts lie in `storage`
  std::vector<RawMerge> merges;      // by rank
  std::vector<AddedToken> added_tokens;
  std::optional<std::string> unknown_token;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::optional<std::string> bos_token;  // what the post-processor puts before a text
  std::shared_ptr<const void> storage;
};

// The parts of tokenizer.json that say how text is cut and joined. Each takes the part's JSON text and throws Error
// kUnsupported unless it is what Gemma's tokenizers have, kCorruptFile if it contradicts itself.
void CheckNormalizer(std::string_view json, const std::string& where);
void CheckPreTokenizer(std::string_view json, const std::string& where);
void CheckDecoder(std::string_view json, const std::string& where);
std::optional<std::string> ReadPostProcessor(std::string_view json, const std::string& where);
std::vector<AddedToken> ReadAddedTokens(std::string_view json, const std::string& where);

// `text` in double quotes with escapes, cut after some 60 bytes: for messages of one line.
std::string Quoted(std::string_view text);

}  // namespace lapidary
