#include "generation/answer_text.h"

namespace lapidary {

AnswerText::AnswerText(const Tokenizer* tokenizer, const std::vector<std::string>& stops) : stops_(stops) {
  if (!tokenizer) return;
  decoder_.emplace(*tokenizer);
  known_ids_ = tokenizer->size();
}

std::string AnswerText::Push(int32_t id) { return id < known_ids_ ? stops_.Push(decoder_->Push(id)) : std::string(); }

std::string AnswerText::Finish() {
  if (!decoder_ || stopped()) return {};
  std::string rest = stops_.Push(decoder_->Finish());
  return stopped() ? rest : rest + stops_.Finish();
}

}  // namespace lapidary
