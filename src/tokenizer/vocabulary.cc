#include "tokenizer/vocabulary.h"

#include <bit>

namespace lapidary {

Vocabulary::Vocabulary(size_t tokens, size_t text_bytes, int32_t id_limit)
    : spans_(static_cast<size_t>(id_limit)), slots_(std::bit_ceil(2 * tokens + 2)), mask_(slots_.size() - 1) {
  arena_.reserve(text_bytes);
}

size_t Vocabulary::SlotOf(std::string_view text, uint32_t hash) const {
  size_t at = hash & mask_;
  while (slots_[at].id >= 0 && (slots_[at].hash != hash || Text(slots_[at].id) != text)) at = (at + 1) & mask_;
  return at;
}

Vocabulary::AddResult Vocabulary::Add(std::string_view text, uint32_t hash, int32_t id) {
  Span& span = spans_[static_cast<size_t>(id)];
  if (span.length != kNoToken) return AddResult::kIdTaken;
  Slot& slot = slots_[SlotOf(text, hash)];
  if (slot.id >= 0) return AddResult::kTextTaken;
  slot = {hash, id};
  span = {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(text.size())};
  arena_ += text;
  return AddResult::kAdded;
}

int32_t Vocabulary::Find(std::string_view text, uint32_t hash) const { return slots_[SlotOf(text, hash)].id; }

}  // namespace lapidary
