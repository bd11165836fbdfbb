#include "kv/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace lapidary {
namespace {

using Ids = std::vector<int32_t>;

// Children of a node that are looked at for one that shares some of its rows.
constexpr int kMostSiblings = 64;

// In lexicographic order, so that the longest common beginning is beside the place of what is looked for.
struct IdsLess {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the library's name
  bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

int64_t CommonBeginning(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

std::span<const int32_t> BlockIds(std::span<const int32_t> tokens, int64_t index) {
  return tokens.subspan(static_cast<size_t>(index * kKvBlockTokens), kKvBlockTokens);
}

}  // namespace

class PrefixCache::Node {
 public:
  Node* parent = nullptr;
  const Ids* ids = nullptr;  // the key in the parent's children
  std::map<Ids, std::unique_ptr<Node>, IdsLess> children;
  std::array<int32_t, kKvGroups> blocks{-1, -1};
  int cursors = 0;
};

PrefixCache::Cursor::Cursor(PrefixCache& cache, Node* node, int64_t blocks)
    : cache_(&cache), node_(node), blocks_(blocks) {
  ++node->cursors;
}

PrefixCache::Cursor::Cursor(Cursor&& other) noexcept { *this = std::move(other); }

PrefixCache::Cursor& PrefixCache::Cursor::operator=(Cursor&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(node_, other.node_);
  std::swap(blocks_, other.blocks_);
  return *this;
}

PrefixCache::Cursor::~Cursor() {
  if (node_ == nullptr) return;
  --node_->cursors;
  cache_->Prune(node_);
}

PrefixCache::PrefixCache(const KvLayout& layout, BlockPools& pools)
    : layout_(layout), pools_(pools), root_(std::make_unique<Node>()) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    owners_[g].assign(static_cast<size_t>(pools[g].count()), nullptr);
    pools[g].OnEviction([this, g](int32_t block) { Evicted(g, block); });
  }
}

PrefixCache::~PrefixCache() {
  for (BlockPool& pool : pools_) pool.OnEviction(nullptr);
}

bool PrefixCache::HasBlocks(const Node& node) const {
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (layout_.groups[g].layers > 0 && node.blocks[g] < 0) return false;
  }
  return true;
}

bool PrefixCache::Reaches(const Node& node) const {
  for (size_t g = 0; g < kKvGroups; ++g) {
    const KvGroup& group = layout_.groups[g];
    if (group.layers > 0 && group.window == 0 && node.blocks[g] < 0) return false;
  }
  return true;
}

// Whether every group has the blocks that position `next` sees.
bool PrefixCache::SeesAll(const Match& match, int64_t next) const {
  const int64_t whole = next / kKvBlockTokens;
  if (next % kKvBlockTokens > 0 && !HasBlocks(*match.tail)) return false;
  for (size_t g = 0; g < kKvGroups; ++g) {
    const KvGroup& group = layout_.groups[g];
    if (group.layers == 0 || group.window == 0) continue;  // Find took whole blocks of unbounded groups alone
    for (int64_t i = FirstSeenBlock(group, next); i < whole; ++i) {
      if (match.nodes[static_cast<size_t>(i)]->blocks[g] < 0) return false;
    }
  }
  return true;
}

// The child with what it takes (`whole`: every block, else those of unbounded groups) that shares the longest beginning
// with `ids`, and how long that is.
PrefixCache::Tail PrefixCache::FindTail(Node& node, std::span<const int32_t> ids, bool whole) const {
  Tail best;
  int left = kMostSiblings;
  // The further a child stands from the place of `ids`, the less it shares.
  const auto better = [&](Node& child) {
    const int64_t shared = CommonBeginning(ids, *child.ids);
    if (shared <= best.shared || --left < 0) return false;
    if (whole ? HasBlocks(child) : Reaches(child)) best = {&child, shared};
    return true;
  };
  const auto place = node.children.lower_bound(ids);
  for (auto it = place; it != node.children.end() && better(*it->second); ++it) continue;
  for (auto it = place; it != node.children.begin() && better(*std::prev(it)->second); --it) continue;
  return best;
}

PrefixCache::Match PrefixCache::Find(std::span<const int32_t> tokens, int64_t most) {
  assert(most < static_cast<int64_t>(tokens.size()));
  Match match;
  Node* node = root_.get();
  int64_t whole = 0;
  for (; (whole + 1) * kKvBlockTokens <= most; ++whole) {
    const auto child = node->children.find(BlockIds(tokens, whole));
    if (child == node->children.end() || !Reaches(*child->second)) break;
    node = child->second.get();
    match.nodes.push_back(node);
  }
  const int64_t begin = whole * kKvBlockTokens;
  const int64_t rest = std::min<int64_t>(most - begin, kKvBlockTokens);
  const auto ids = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rest));
  const Tail tail = FindTail(*node, ids, true);
  match.tail = tail.node;
  match.tokens = begin + tail.shared;
  match.reach = begin + std::max(tail.shared, FindTail(*node, ids, false).shared);
  while (match.tokens > 0 && !SeesAll(match, match.tokens)) {
    match.tokens = (match.tokens - 1) / kKvBlockTokens * kKvBlockTokens;
  }
  match.nodes.resize(static_cast<size_t>(match.tokens / kKvBlockTokens));
  if (match.tokens % kKvBlockTokens == 0) match.tail = nullptr;
  return match;
}

std::array<int64_t, kKvGroups> PrefixCache::InUse(const Match& match) const {
  std::array<int64_t, kKvGroups> in_use{};
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (layout_.groups[g].layers == 0) continue;
    const auto first = static_cast<size_t>(FirstSeenBlock(layout_.groups[g], match.tokens));
    for (size_t i = first; i < match.nodes.size(); ++i) {
      in_use[g] += pools_[g].references(match.nodes[i]->blocks[g]) > 0;
    }
  }
  return in_use;
}

int64_t PrefixCache::Start(const Match& match, SequenceBlocks& blocks, Cursor& cursor, const CopyBlock& copy) {
  cursor = MakeCursor(match.nodes.empty() ? root_.get() : match.nodes.back(), static_cast<int64_t>(match.nodes.size()));
  std::array<int32_t, kKvGroups> first{};
  std::array<std::vector<int32_t>, kKvGroups> taken;
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (layout_.groups[g].layers == 0) continue;
    first[g] = static_cast<int32_t>(FirstSeenBlock(layout_.groups[g], match.tokens));
    for (size_t i = static_cast<size_t>(first[g]); i < match.nodes.size(); ++i) {
      taken[g].push_back(match.nodes[i]->blocks[g]);
      pools_[g].AddReference(taken[g].back());
    }
  }
  blocks.Adopt(first, std::move(taken));
  if (match.tail == nullptr || CopyTail(match, blocks, copy)) return match.tokens;
  // Without the rows of the tail a window may begin earlier than what is here.
  Match shorter = match;
  shorter.tail = nullptr;
  do {
    shorter.tokens = std::max<int64_t>(0, (shorter.tokens - 1) / kKvBlockTokens * kKvBlockTokens);
  } while (shorter.tokens > 0 && !SeesAll(shorter, shorter.tokens));
  shorter.nodes.resize(static_cast<size_t>(shorter.tokens / kKvBlockTokens));
  blocks.Clear();
  return Start(shorter, blocks, cursor, copy);
}

bool PrefixCache::CopyTail(const Match& match, SequenceBlocks& blocks, const CopyBlock& copy) {
  // Held while room is made for the copies, which may cost other kept blocks.
  const std::array<int32_t, kKvGroups> source = match.tail->blocks;
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (source[g] >= 0) pools_[g].AddReference(source[g]);
  }
  bool copied = blocks.Reserve(match.tokens);
  for (int g = 0; g < kKvGroups && copied; ++g) {
    if (layout_.groups[static_cast<size_t>(g)].layers == 0) continue;
    const int32_t to = blocks.BlockAt(g, match.tokens / kKvBlockTokens);
    copied = copy && copy(g, source[static_cast<size_t>(g)], to);
  }
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (source[g] >= 0) pools_[g].Release(source[g]);
  }
  return copied;
}

PrefixCache::Node* PrefixCache::Add(Node& parent, std::span<const int32_t> ids) {
  const auto [it, fresh] = parent.children.try_emplace(Ids(ids.begin(), ids.end()));
  if (!fresh) return it->second.get();
  it->second = std::make_unique<Node>();
  it->second->parent = &parent;
  it->second->ids = &it->first;
  ++nodes_;
  return it->second.get();
}

void PrefixCache::Share(Node& node, int64_t index, SequenceBlocks& blocks) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    const int32_t own = blocks.BlockAt(static_cast<int>(g), index);
    if (own < 0) continue;
    if (node.blocks[g] >= 0) {
      blocks.Replace(static_cast<int>(g), index, node.blocks[g]);
      continue;
    }
    node.blocks[g] = own;
    owners_[g][static_cast<size_t>(own)] = &node;
    pools_[g].Keep(own);
  }
}

void PrefixCache::DropBlocks(Node& node) {
  for (size_t g = 0; g < kKvGroups; ++g) {
    if (node.blocks[g] < 0) continue;
    owners_[g][static_cast<size_t>(node.blocks[g])] = nullptr;
    pools_[g].Drop(std::exchange(node.blocks[g], -1));
  }
}

// Children that `ids` begins with hold nothing that those of `ids` do not hold.
void PrefixCache::DropShorter(Node& parent, std::span<const int32_t> ids) {
  for (auto it = parent.children.lower_bound(ids); it != parent.children.begin();) {
    Node* before = std::prev(it)->second.get();
    const auto length = static_cast<int64_t>(before->ids->size());
    if (length == static_cast<int64_t>(ids.size()) || CommonBeginning(*before->ids, ids) < length) return;
    DropBlocks(*before);
    it = parent.children.erase(std::prev(it));
    --nodes_;
  }
}

void PrefixCache::Extend(std::span<const int32_t> tokens, int64_t cached, SequenceBlocks& blocks, Cursor& cursor) {
  if (cursor.node_ == nullptr) cursor = MakeCursor(root_.get(), 0);
  while ((cursor.blocks_ + 1) * kKvBlockTokens <= cached) {
    const int64_t index = cursor.blocks_;
    const std::span<const int32_t> ids = BlockIds(tokens, index);
    Node* node = Add(*cursor.node_, ids);
    Share(*node, index, blocks);
    if (HasBlocks(*node)) DropShorter(*cursor.node_, ids);
    cursor = MakeCursor(node, index + 1);
  }
}

void PrefixCache::Finish(std::span<const int32_t> tokens, int64_t cached, SequenceBlocks& blocks, Cursor& cursor) {
  Extend(tokens, cached, blocks, cursor);
  const int64_t begin = cursor.blocks_ * kKvBlockTokens;
  if (cached <= begin) return;
  const auto ids = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(cached - begin));
  if (FindTail(*cursor.node_, ids, true).shared == cached - begin) return;
  Node* node = Add(*cursor.node_, ids);
  Share(*node, cursor.blocks_, blocks);
  if (HasBlocks(*node)) DropShorter(*cursor.node_, ids);
}

void PrefixCache::Evicted(size_t group, int32_t block) {
  Node* node = std::exchange(owners_[group][static_cast<size_t>(block)], nullptr);
  assert(node != nullptr);
  node->blocks[group] = -1;
  Prune(node);
}

void PrefixCache::Prune(Node* node) {
  while (node != root_.get() && node->children.empty() && node->cursors == 0 && node->blocks[0] < 0 &&
         node->blocks[1] < 0) {
    Node* parent = node->parent;
    parent->children.erase(parent->children.find(*node->ids));
    --nodes_;
    node = parent;
  }
}

}  // namespace lapidary
