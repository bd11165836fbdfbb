#include "tokenizer/merge_table.h"

#include <bit>

namespace lapidary {

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(2 * merges + 2)), mask_(slots_.size() - 1) {}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  size_t at = Home(left, right);
  while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right)) at = (at + 1) & mask_;
  slots_[at] = {left, right, merge};
}

}  // namespace lapidary
