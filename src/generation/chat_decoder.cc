#include "generation/chat_decoder.h"

#include <optional>
#include <utility>

#include "chat/markers.h"

namespace lapidary {
namespace {

bool HasChatTokens(const Tokenizer& tokenizer) {
  const std::optional<int32_t> id = tokenizer.Find(marker::kTurnClose);
  return id && tokenizer.IsSpecial(*id);
}

std::vector<ChatEvent> Joined(std::vector<ChatEvent> events, std::vector<ChatEvent> more) {
  for (ChatEvent& event : more) events.push_back(std::move(event));
  return events;
}

}  // namespace

ChatDecoder::ChatDecoder(const Tokenizer& tokenizer, const ChatParserOptions& options)
    : tokenizer_(&tokenizer),
      by_token_(HasChatTokens(tokenizer)),
      decoder_(tokenizer, /*skip_special=*/false),
      parser_(options) {}

std::vector<ChatEvent> ChatDecoder::PushForced(std::string_view opening) { return parser_.Push(opening); }

std::vector<ChatEvent> ChatDecoder::Push(int32_t id) {
  if (id < 0 || id >= tokenizer_->size()) return {};
  if (!by_token_) return parser_.Push(decoder_.Push(id));
  if (!tokenizer_->IsSpecial(id)) return parser_.PushToken(decoder_.Push(id), false);
  // What is left of a character will not be completed.
  std::vector<ChatEvent> events = parser_.PushToken(decoder_.Finish(), false);
  return Joined(std::move(events), parser_.PushToken(tokenizer_->Piece(id), true));
}

std::vector<ChatEvent> ChatDecoder::Finish() {
  const std::string rest = decoder_.Finish();
  std::vector<ChatEvent> events = by_token_ ? parser_.PushToken(rest, false) : parser_.Push(rest);
  return Joined(std::move(events), parser_.Finish());
}

}  // namespace lapidary
