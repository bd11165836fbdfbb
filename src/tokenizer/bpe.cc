#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "tokenizer/utf8.h"

namespace lapidary {
namespace {

// Up to here searching all neighbours for the lowest rank is cheaper than a heap.
constexpr size_t kShortPiece = 32;

}  // namespace

// The ids of pieces seen before in this text, by their bytes. Direct-mapped: a newer piece replaces an older one.
class BpeModel::PieceCache {
 public:
  explicit PieceCache(size_t text_bytes) {
    constexpr size_t kWorthwhileBytes = 1024;
    if (text_bytes >= kWorthwhileBytes) entries_.resize(std::min<size_t>(std::bit_ceil(text_bytes / 8), 8192));
  }

  struct Entry {
    std::array<uint64_t, 3> key = {};  // the bytes, then zeros
    uint32_t length_bytes = 0;         // 0: empty
    uint32_t ids_begin = 0;            // in the ids of this text
    uint32_t ids_count = 0;
  };

  // The entry where `piece` is or should be, and whether it is there already; null: not to be cached.
  std::pair<Entry*, bool> Find(std::string_view piece) {
    if (entries_.empty() || piece.size() > sizeof(Entry::key)) return {nullptr, false};
    std::array<uint64_t, 3> key = {};
    std::memcpy(key.data(), piece.data(), piece.size());
    const uint64_t hash = MixBits(key[0] ^ 0x9E3779B97F4A7C15, key[1] ^ 0xD6E8FEB86659FD93) ^ key[2];
    Entry& entry = entries_[(hash ^ hash >> 32) & (entries_.size() - 1)];
    if (entry.length_bytes == piece.size() && entry.key == key) return {&entry, true};
    entry.key = key;
    entry.length_bytes = static_cast<uint32_t>(piece.size());
    return {&entry, false};
  }

 private:
  std::vector<Entry> entries_;
};

BpeModel::CharacterIds::CharacterIds() : page_of_(0x1100), pages_(256, -1) {}

void BpeModel::CharacterIds::Set(uint32_t code_point, int32_t id) {
  uint32_t& page = page_of_[code_point >> 8];
  if (page == 0) {
    page = static_cast<uint32_t>(pages_.size());
    pages_.resize(pages_.size() + 256, -1);
  }
  pages_[page + (code_point & 0xFF)] = id;
}

BpeModel::BpeModel(const Vocabulary& vocabulary, size_t merges, BpeOptions options)
    : vocabulary_(&vocabulary), options_(options), merges_(merges), joins_((size_t{1} << 20) / 64) {
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    const std::string_view text = vocabulary.Text(id);
    if (text.empty() || text.size() > 4) continue;
    const CodePoint first = FirstCodePoint(text);
    if (first.length_bytes == text.size()) character_ids_.Set(first.value, id);
  }
}

void BpeModel::AddMerge(int32_t left, int32_t right, Merge merge) {
  merges_.Add(left, right, merge);
  const std::string_view left_text = vocabulary_->Text(left);
  const std::string_view right_text = vocabulary_->Text(right);
  if (left_text.empty() || right_text.empty()) return;  // no symbol is empty: the merge never applies
  const uint32_t bit = JoinBit(LastCodePoint(left_text).value, FirstCodePoint(right_text).value);
  joins_[bit / 64] |= uint64_t{1} << (bit % 64);
}

BpeModel::Character BpeModel::Classify(uint32_t code_point) const {
  const int32_t id = character_ids_.Get(code_point);
  if (id >= 0) return {id, code_point, code_point, true};
  if (options_.byte_ids) return {-1, '<', '>', true};  // as the texts of byte tokens begin and end
  return {-1, 0, 0, false};
}

// One call of BpeModel::Encode.
class BpeModel::Encoder {
 public:
  Encoder(const BpeModel& model, std::string_view text, std::vector<int32_t>& ids)
      : model_(model), text_(text), ids_(ids), cache_(text.size()) {}

  void Run() {
    size_t piece_begin = 0;
    Character before = {-1, 0, 0, true};
    for (size_t at = 0; at < text_.size();) {
      const CodePoint found = FirstCodePoint(text_.substr(at));
      const bool space = found.value == ' ';
      const Character character = model_.Classify(space ? kSpaceMark : found.value);
      const bool cut = before.may_cut && character.may_cut && !model_.MayJoin(before.last, character.first);
      if (cut && at > piece_begin) {
        FinishPiece(text_.substr(piece_begin, at - piece_begin));
        piece_begin = at;
      }
      AddSymbols(character, space ? kSpaceMarkUtf8 : text_.substr(at, found.length_bytes), !before.may_cut);
      before = character;
      at += found.length_bytes;
    }
    if (!text_.empty()) FinishPiece(text_.substr(piece_begin));
  }

 private:
  void AddSymbols(const Character& character, std::string_view bytes, bool after_unknown) {
    const BpeOptions& options = model_.options_;
    if (character.id >= 0) {
      symbols_.push_back(character.id);
    } else if (options.byte_ids) {
      for (const char byte : bytes) symbols_.push_back((*options.byte_ids)[static_cast<uint8_t>(byte)]);
    } else if (options.unknown_id && !(options.fuse_unknown && after_unknown)) {
      symbols_.push_back(*options.unknown_id);
    }
  }

  // Appends the ids of the piece whose symbols are at hand.
  void FinishPiece(std::string_view piece) {
    const size_t begin = ids_.size();
    const auto [entry, known] = cache_.Find(piece);
    if (known) {
      ids_.resize(begin + entry->ids_count);
      std::copy_n(ids_.begin() + entry->ids_begin, entry->ids_count, ids_.begin() + static_cast<ptrdiff_t>(begin));
    } else {
      model_.MergeSymbols(symbols_);
      ids_.insert(ids_.end(), symbols_.begin(), symbols_.end());
    }
    if (entry != nullptr && !known) {
      entry->ids_begin = static_cast<uint32_t>(begin);
      entry->ids_count = static_cast<uint32_t>(symbols_.size());
    }
    symbols_.clear();
  }

  const BpeModel& model_;
  std::string_view text_;
  std::vector<int32_t>& ids_;
  PieceCache cache_;
  std::vector<int32_t> symbols_;  // of the piece that is being read
};

void BpeModel::Encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges && EncodeWhole(text, ids)) return;
  Encoder(*this, text, ids).Run();
}

bool BpeModel::EncodeWhole(std::string_view text, std::vector<int32_t>& ids) const {
  const int32_t id = vocabulary_->Find(MarkSpaces(text));
  if (id < 0) return false;
  ids.push_back(id);
  return true;
}

void BpeModel::MergeSymbols(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) return;
  symbols.size() <= kShortPiece ? MergeShort(symbols) : MergeLong(symbols);
}

void BpeModel::MergeShort(std::vector<int32_t>& symbols) const {
  std::array<Merge, kShortPiece> merges;  // merges[i] joins symbols i and i + 1
  size_t pairs = symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) merges[i] = merges_.Find(symbols[i], symbols[i + 1]);
  while (pairs > 0) {
    const auto by_rank = [](const Merge& a, const Merge& b) { return a.rank < b.rank; };
    const auto best = std::min_element(merges.begin(), merges.begin() + static_cast<ptrdiff_t>(pairs), by_rank);
    if (best->rank == Merge::kNone) break;
    const auto at = static_cast<size_t>(best - merges.begin());
    symbols[at] = best->result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
    std::copy(best + 1, merges.begin() + static_cast<ptrdiff_t>(pairs), best);
    --pairs;
    if (at > 0) merges[at - 1] = merges_.Find(symbols[at - 1], symbols[at]);
    if (at < pairs) merges[at] = merges_.Find(symbols[at], symbols[at + 1]);
  }
}

void BpeModel::MergeLong(std::vector<int32_t>& symbols) const {
  struct Node {
    int32_t id;  // -1: merged into its left neighbour
    uint32_t previous;
    uint32_t next;
    Merge merge;  // with the next
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<Node> nodes(count);
  std::vector<uint64_t> heap;  // rank << 32 | position; entries whose pair is gone by then are passed over
  heap.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    nodes[i] = {symbols[i], i - 1, i + 1, i + 1 < count ? merges_.Find(symbols[i], symbols[i + 1]) : Merge()};
    if (nodes[i].merge.rank != Merge::kNone) heap.push_back(static_cast<uint64_t>(nodes[i].merge.rank) << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto update = [&](uint32_t left, uint32_t right) {
    const Merge merge = nodes[left].merge = merges_.Find(nodes[left].id, nodes[right].id);
    if (merge.rank == Merge::kNone) return;
    heap.push_back(static_cast<uint64_t>(merge.rank) << 32 | left);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto at = static_cast<uint32_t>(heap.back());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    Node& node = nodes[at];
    if (node.id < 0 || node.merge.rank != rank) continue;
    Node& right = nodes[node.next];
    node = {node.merge.result, node.previous, right.next, Merge()};
    right.id = -1;
    if (node.next < count) nodes[node.next].previous = at;
    if (at > 0) update(node.previous, at);
    if (node.next < count) update(at, node.next);
  }
  symbols.clear();
  for (uint32_t i = 0; i < count; i = nodes[i].next) symbols.push_back(nodes[i].id);
}

}  // namespace lapidary
