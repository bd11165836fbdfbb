#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"

namespace lapidary {

struct BpeOptions {
  std::optional<std::array<int32_t, 256>> byte_ids;  // byte fallback: the token of each byte
  std::optional<int32_t> unknown_id;                 // for characters without a token; none: they vanish
  bool fuse_unknown = false;                         // one unknown token for neighbouring unknown characters
  bool ignore_merges = false;                        // a stretch that is itself a token is that token
};

// Byte-pair encoding with the rules of Hugging Face's `tokenizers` (models/bpe): a stretch of text begins as one symbol
// a character, and the neighbours whose merge has the lowest rank are merged, leftmost first, until no merge applies.
//
// The text is first cut wherever no merge joins the characters on both sides: for each merge the last character of its
// left and the first of its right token are noted, and a symbol that spans a cut would need such a merge. Pieces
// are therefore independent, and merging each alone gives the same ids as merging the whole.
class BpeModel {
 public:
  // `vocabulary` must outlive the model; added tokens that the model does not know are not in it. Follow with AddMerge
  // for every merge.
  BpeModel(const Vocabulary& vocabulary, size_t merges, BpeOptions options);
  // All three ids are in the vocabulary; `merge.result` is the token of both texts joined.
  void AddMerge(int32_t left, int32_t right, Merge merge);

  // Appends the ids of `text`: valid UTF-8 below 2 GiB without added tokens; a space reads as U+2581.
  void Encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  class PieceCache;
  class Encoder;
  class CharacterIds {  // code point -> id or -1, in pages of 256
   public:
    CharacterIds();
    void Set(uint32_t code_point, int32_t id);
    int32_t Get(uint32_t code_point) const { return pages_[page_of_[code_point >> 8] + (code_point & 0xFF)]; }

   private:
    std::vector<uint32_t> page_of_;  // [0x1100], where each page begins; 0 is the empty page
    std::vector<int32_t> pages_;
  };
  struct Character {  // one character of the text and the ends of the symbols that it becomes
    int32_t id;       // its token, -1: none
    uint32_t first;
    uint32_t last;
    bool may_cut;  // false: its symbols depend on the neighbours
  };

  static uint32_t JoinBit(uint32_t last, uint32_t first) { return (last * 0x9E3779B1U + first * 0x85EBCA6BU) >> 12; }
  bool MayJoin(uint32_t last, uint32_t first) const {
    const uint32_t bit = JoinBit(last, first);
    return (joins_[bit / 64] >> (bit % 64) & 1) != 0;
  }
  Character Classify(uint32_t code_point) const;
  bool EncodeWhole(std::string_view text, std::vector<int32_t>& ids) const;
  // Merges `symbols` in place, all of them one piece.
  void MergeSymbols(std::vector<int32_t>& symbols) const;
  void MergeShort(std::vector<int32_t>& symbols) const;
  void MergeLong(std::vector<int32_t>& symbols) const;

  const Vocabulary* vocabulary_;
  BpeOptions options_;
  MergeTable merges_;
  CharacterIds character_ids_;
  std::vector<uint64_t> joins_;  // 2^20 bits by JoinBit; set by chance too, which only leaves a piece longer
};

}  // namespace lapidary
