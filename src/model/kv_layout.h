#pragma once

#include <array>
#include <cstdint>

namespace lapidary {

// Positions in one block of the K/V cache. Attention kernels walk the cache in blocks of this many absolute positions,
// so it is also part of the order in which they add (see docs/numerics.md).
inline constexpr int kKvBlockTokens = 64;

// Layers of one attention type keep their K/V in one group: one block table serves all of its layers.
struct KvGroup {
  int layers = 0;  // layers of this type that write K/V; slots are [0, layers)
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;  // 0: unbounded; else position i sees max(0, i - window + 1) .. i

  // Elements of one block: [layers, 2 (k, v), kv_heads, kKvBlockTokens, head_dim].
  int64_t elements_per_block() const { return int64_t{2} * layers * kv_heads * kKvBlockTokens * head_dim; }
};

inline constexpr int kKvGroups = 2;  // indexed by AttentionType

struct KvLayout {
  std::array<KvGroup, kKvGroups> groups;
};

}  // namespace lapidary
