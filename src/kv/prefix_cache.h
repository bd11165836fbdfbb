#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "model/kv_layout.h"

namespace lapidary {

// Which blocks hold the K/V of which tokens: a tree whose nodes are runs of up to kKvBlockTokens token ids, so that the
// way from the root to a node spells the whole prefix. Ids are compared, not hashed: two prefixes never pass for one
// another. Whole blocks are shared as they are; of a block that is filled or shared in part, the rows are copied. A
// prefix can be used up to a position when each group still has every block that the position sees. Pure bookkeeping:
// holds no tensor. Not thread-safe; the layout and the pools must outlive it.
class PrefixCache {
 public:
  class Node;

  // Copies rows of one block of a group to another; false when that is impossible.
  using CopyBlock = std::function<bool(int group, int32_t from, int32_t to)>;

  // The longest prefix that can be used. Valid until the next change of the cache or the pools.
  struct Match {
    int64_t tokens = 0;        // usable positions [0, tokens)
    int64_t reach = 0;         // >= tokens: what could be used if nothing of the windows were gone
    std::vector<Node*> nodes;  // whole blocks, [tokens / kKvBlockTokens]
    Node* tail = nullptr;      // its first tokens % kKvBlockTokens rows go on behind them
  };

  // How far a sequence stands in the tree; the tree keeps that place as long as the cursor lives.
  class Cursor {
   public:
    Cursor() = default;
    Cursor(Cursor&& other) noexcept;
    Cursor& operator=(Cursor&& other) noexcept;
    ~Cursor();

   private:
    friend class PrefixCache;
    Cursor(PrefixCache& cache, Node* node, int64_t blocks);

    PrefixCache* cache_ = nullptr;
    Node* node_ = nullptr;
    int64_t blocks_ = 0;  // whole blocks on the way to node_
  };

  PrefixCache(const KvLayout& layout, BlockPools& pools);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Of `tokens`, at most `most` positions, which is less than tokens.size().
  Match Find(std::span<const int32_t> tokens, int64_t most);
  // Blocks of the match that sequences hold already: Start takes no room for them.
  std::array<int64_t, kKvGroups> InUse(const Match& match) const;
  // Gives `blocks`, which is empty, the K/V of the match. Returns the positions that really are there: fewer when rows
  // could not be copied.
  int64_t Start(const Match& match, SequenceBlocks& blocks, Cursor& cursor, const CopyBlock& copy);

  // Takes in the whole blocks of a sequence whose positions [0, cached) are computed. Where the cache has the same
  // prefix already, the sequence goes on with the cache's block.
  void Extend(std::span<const int32_t> tokens, int64_t cached, SequenceBlocks& blocks, Cursor& cursor);
  // Extend, and what is left behind the last whole block too: the sequence ends here. It still holds its blocks.
  void Finish(std::span<const int32_t> tokens, int64_t cached, SequenceBlocks& blocks, Cursor& cursor);

  int64_t nodes() const { return nodes_; }  // without the root

 private:
  Cursor MakeCursor(Node* node, int64_t blocks) { return {*this, node, blocks}; }
  struct Tail {
    Node* node = nullptr;
    int64_t shared = 0;
  };

  bool HasBlocks(const Node& node) const;
  bool Reaches(const Node& node) const;
  Tail FindTail(Node& node, std::span<const int32_t> ids, bool whole) const;
  bool SeesAll(const Match& match, int64_t next) const;
  // Gives `blocks` the rows of the match's tail, in a block of its own.
  bool CopyTail(const Match& match, SequenceBlocks& blocks, const CopyBlock& copy);
  Node* Add(Node& parent, std::span<const int32_t> ids);
  // Makes the sequence's blocks at `index` those of the node where it lacks them, and the other way round.
  void Share(Node& node, int64_t index, SequenceBlocks& blocks);
  void DropShorter(Node& parent, std::span<const int32_t> ids);
  void DropBlocks(Node& node);
  void Evicted(size_t group, int32_t block);
  // Removes the node, and those above it, as far as nothing needs them.
  void Prune(Node* node);

  const KvLayout& layout_;
  BlockPools& pools_;
  std::unique_ptr<Node> root_;
  std::array<std::vector<Node*>, kKvGroups> owners_;  // [blocks of the group]; nullptr: not in the tree
  int64_t nodes_ = 0;
};

}  // namespace lapidary
