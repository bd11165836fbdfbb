#include <utility>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace lapidary {

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string IncrementalDecoder::Push(int32_t id) {
  if (tokenizer_->IsSpecial(id) && skip_special_) return {};
  if (tokenizer_->IsByte(id)) return PushByte(tokenizer_->Piece(id));
  std::string text = Finish();
  text += tokenizer_->Piece(id);
  return text;
}

std::string IncrementalDecoder::PushByte(std::string_view byte) {
  pending_ += byte;
  const Utf8State state = run_is_invalid_ ? Utf8State::kInvalid : ClassifyUtf8(pending_).state;
  if (state == Utf8State::kPartial) return {};
  if (state == Utf8State::kComplete) return std::exchange(pending_, {});
  std::string text = Finish();
  run_is_invalid_ = true;
  return text;
}

std::string IncrementalDecoder::Finish() {
  std::string text;
  for (size_t i = 0; i < pending_.size(); ++i) text += kReplacementUtf8;
  pending_.clear();
  run_is_invalid_ = false;
  return text;
}

}  // namespace lapidary
