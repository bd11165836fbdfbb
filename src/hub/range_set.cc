#include "hub/range_set.h"

#include <algorithm>
#include <iterator>

namespace lapidary {

void RangeSet::Add(ByteRange range) {
  if (range.begin >= range.end) return;
  auto next = ends_.upper_bound(range.begin);
  if (next != ends_.begin() && std::prev(next)->second >= range.begin) --next;
  while (next != ends_.end() && next->first <= range.end) {
    range.begin = std::min(range.begin, next->first);
    range.end = std::max(range.end, next->second);
    next = ends_.erase(next);
  }
  ends_.emplace(range.begin, range.end);
}

int64_t RangeSet::CoveredBytes() const {
  int64_t bytes = 0;
  for (const auto& [begin, end] : ends_) bytes += end - begin;
  return bytes;
}

std::vector<ByteRange> RangeSet::Ranges() const {
  std::vector<ByteRange> ranges;
  ranges.reserve(ends_.size());
  for (const auto& [begin, end] : ends_) ranges.push_back({begin, end});
  return ranges;
}

std::vector<ByteRange> RangeSet::Missing(int64_t size) const {
  std::vector<ByteRange> missing;
  int64_t position = 0;
  for (const auto& [begin, end] : ends_) {
    if (position < begin) missing.push_back({position, std::min(begin, size)});
    position = end;
  }
  if (position < size) missing.push_back({position, size});
  return missing;
}

}  // namespace lapidary
