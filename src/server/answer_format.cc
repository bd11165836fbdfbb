#include "server/answer_format.h"

#include <iterator>
#include <utility>

namespace lapidary {

void Usage::Add(size_t choice, const AnswerEnd& end) {
  if (choice % choices_per_prompt_ == 0) {
    prompt_tokens_ += end.prompt_tokens;
    cached_tokens_ += end.cached_tokens;
  }
  answer_tokens_ += end.answer_tokens;
  reasoning_tokens_ += end.reasoning_tokens;
}

OrderedJson Usage::Json() const {
  OrderedJson usage;
  usage["prompt_tokens"] = prompt_tokens_;
  usage["completion_tokens"] = answer_tokens_;
  usage["total_tokens"] = prompt_tokens_ + answer_tokens_;
  usage["prompt_tokens_details"]["cached_tokens"] = cached_tokens_;
  usage["completion_tokens_details"]["reasoning_tokens"] = reasoning_tokens_;
  return usage;
}

const char* FinishName(const AnswerEnd& end) {
  if (end.finish == FinishReason::kLength) return "length";
  return end.complete_calls > 0 ? "tool_calls" : "stop";
}

OrderedJson AnswerHeader::Begin(const char* object) const {
  OrderedJson json;
  json["id"] = id;
  json["object"] = object;
  json["created"] = created_unix_s;
  json["model"] = model;
  return json;
}

void Append(AnswerDelta delta, AnswerDelta& to) {
  for (ChatEvent& event : delta.events) {
    ChatEvent* last = to.events.empty() ? nullptr : &to.events.back();
    const bool joins = last && last->kind == event.kind && last->call == event.call && !event.text.empty() &&
                       event.kind != ChatEventKind::kCallName;
    if (joins) {
      last->text += event.text;
    } else {
      to.events.push_back(std::move(event));
    }
  }
  to.ids.insert(to.ids.end(), delta.ids.begin(), delta.ids.end());
  const auto move_all = [](auto& from, auto& into) {
    into.insert(into.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_all(delta.logprobs, to.logprobs);
  move_all(delta.prompt_logprobs, to.prompt_logprobs);
  if (delta.end) to.end = std::move(delta.end);
}

}  // namespace lapidary
