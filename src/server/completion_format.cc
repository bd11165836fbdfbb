#include "server/completion_format.h"

#include <utility>

namespace lapidary {

CompletionFormat::CompletionFormat(CompletionFormatOptions options, size_t choices, std::vector<EchoedPrompt> echo)
    : options_(std::move(options)), echo_(std::move(echo)) {
  for (size_t i = 0; i < choices; ++i) choices_.emplace_back(options_);
}

OrderedJson CompletionFormat::EmptyChunk() const {
  OrderedJson chunk = options_.header.Begin("text_completion");
  chunk["choices"] = OrderedJson::array();
  return chunk;
}

// The prompt's logprobs lack the first token's.
OrderedJson CompletionFormat::Logprobs(Choice& choice, const AnswerDelta& delta, const EchoedPrompt* prompt) {
  if (!options_.logprobs) return nullptr;
  if (!prompt) return choice.logprobs.Next(delta.ids, delta.logprobs);
  std::vector<int32_t> ids = prompt->ids;
  ids.insert(ids.end(), delta.ids.begin(), delta.ids.end());
  std::vector<TokenLogprobs> logprobs = delta.prompt_logprobs;
  logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  return choice.logprobs.Next(ids, logprobs);
}

// The first entry of a choice carries the echoed prompt.
OrderedJson CompletionFormat::Entry(size_t index, const AnswerDelta& delta) {
  Choice& choice = choices_[index];
  const bool echoes = !std::exchange(choice.begun, true) && !echo_.empty();
  const EchoedPrompt* prompt = echoes ? &echo_[index / options_.choices_per_prompt] : nullptr;
  std::string text = prompt ? prompt->text : std::string();
  for (const ChatEvent& event : delta.events) text += event.text;
  OrderedJson entry;
  entry["index"] = index;
  entry["text"] = std::move(text);
  entry["logprobs"] = Logprobs(choice, delta, prompt);
  entry["finish_reason"] = delta.end ? OrderedJson(FinishName(*delta.end)) : OrderedJson();
  if (options_.token_ids) entry["token_ids"] = delta.ids;
  return entry;
}

void CompletionFormat::Chunks(size_t index, const AnswerDelta& delta, std::vector<OrderedJson>& out) {
  const bool shows_ids = (options_.logprobs || options_.token_ids) && !delta.ids.empty();
  if (delta.events.empty() && !delta.end && !shows_ids && choices_[index].begun) return;
  OrderedJson chunk = EmptyChunk();
  chunk["choices"].push_back(Entry(index, delta));
  out.push_back(std::move(chunk));
}

void CompletionFormat::Take(size_t choice, const AnswerDelta& delta) { Append(delta, choices_[choice].all); }

OrderedJson CompletionFormat::Whole(const Usage& usage) {
  OrderedJson whole = EmptyChunk();
  for (size_t i = 0; i < choices_.size(); ++i) whole["choices"].push_back(Entry(i, choices_[i].all));
  whole["usage"] = usage.Json();
  return whole;
}

}  // namespace lapidary
