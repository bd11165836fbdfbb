#include "generation/answer_reader.h"

#include <utility>

#include "base/error.h"

namespace lapidary {
namespace {

std::vector<ChatEvent> Content(std::string text) {
  if (text.empty()) return {};
  return {{.kind = ChatEventKind::kContent, .text = std::move(text)}};
}

}  // namespace

AnswerReader::AnswerReader(const Tokenizer* tokenizer, const AnswerReaderOptions& options)
    : stops_(options.stop), forced_opening_(options.forced_opening), one_call_(options.one_call) {
  if (!options.chat) {
    text_.emplace(tokenizer, options.stop);
    return;
  }
  if (!tokenizer) Throw(ErrorKind::kInvalidArgument, "chat: found no tokenizer, wanted one to read the answer");
  decoder_.emplace(*tokenizer, *options.chat);
  in_reasoning_ = options.chat->starts_in_reasoning;
  reasoning_begins_ = tokenizer->Find("<|channel>");
  reasoning_ends_ = tokenizer->Find("<channel|>");
}

std::vector<ChatEvent> AnswerReader::Push(int32_t id) {
  if (stopped_) return {};
  if (text_) {
    std::string piece = text_->Push(id);
    stopped_ = text_->stopped();
    return Content(std::move(piece));
  }
  std::vector<ChatEvent> out;
  if (!forced_opening_.empty()) Take(decoder_->PushForced(std::exchange(forced_opening_, {})), out);
  Take(decoder_->Push(id), out);
  CountReasoning(id);
  if (!stopped_ && decoder_->done()) stopped_ = true;
  return out;
}

std::vector<ChatEvent> AnswerReader::Finish() {
  if (text_) return Content(text_->Finish());
  std::vector<ChatEvent> out;
  if (!forced_opening_.empty()) Take(decoder_->PushForced(std::exchange(forced_opening_, {})), out);
  Take(decoder_->Finish(), out);
  FlushContent(out);
  return out;
}

// A thought belongs to the first marker that opens it up to the one that closes it.
void AnswerReader::CountReasoning(int32_t id) {
  if (id == reasoning_begins_) in_reasoning_ = true;
  reasoning_tokens_ += in_reasoning_;
  if (id == reasoning_ends_) in_reasoning_ = false;
}

void AnswerReader::Take(std::vector<ChatEvent> events, std::vector<ChatEvent>& out) {
  for (ChatEvent& event : events) {
    if (stopped_) return;
    if (event.kind == ChatEventKind::kContent) {
      TakeContent(std::move(event), out);
      continue;
    }
    FlushContent(out);
    const bool ends_call = event.kind == ChatEventKind::kCallEnd;
    complete_calls_ += ends_call;
    out.push_back(std::move(event));
    stopped_ = ends_call && one_call_;
  }
}

void AnswerReader::TakeContent(ChatEvent event, std::vector<ChatEvent>& out) {
  event.text = stops_.Push(event.text);
  stopped_ = stops_.stopped();
  if (!event.text.empty()) out.push_back(std::move(event));
}

void AnswerReader::FlushContent(std::vector<ChatEvent>& out) {
  if (stopped_) return;
  for (ChatEvent& event : Content(stops_.Finish())) out.push_back(std::move(event));
}

}  // namespace lapidary
