#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace lapidary {

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive

  bool operator==(const ByteRange&) const = default;
};

// The bytes of a file that are known to be there, as disjoint ranges.
class RangeSet {
 public:
  // An empty range adds nothing; overlaps are merged.
  void Add(ByteRange range);
  void Clear() { ends_.clear(); }

  int64_t CoveredBytes() const;
  std::vector<ByteRange> Ranges() const;               // ascending, not touching
  std::vector<ByteRange> Missing(int64_t size) const;  // of [0, size), ascending

 private:
  std::map<int64_t, int64_t> ends_;  // begin -> end
};

}  // namespace lapidary
