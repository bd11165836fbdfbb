#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/ordered_json.h"
#include "generation/text_service.h"

namespace lapidary {

// {"prompt_tokens", ...} of answers to one or more prompts.
class Usage {
 public:
  explicit Usage(size_t choices_per_prompt) : choices_per_prompt_(choices_per_prompt) {}

  void Add(size_t choice, const AnswerEnd& end);
  OrderedJson Json() const;

 private:
  size_t choices_per_prompt_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, answer_tokens_ = 0, reasoning_tokens_ = 0;
};

// "stop", "length" or "tool_calls".
const char* FinishName(const AnswerEnd& end);

// The fields that every object of one answer begins with.
struct AnswerHeader {
  std::string id, model;
  int64_t created_unix_s = 0;

  OrderedJson Begin(const char* object) const;
};

// How an endpoint writes its answers. A request is either streamed (Chunks) or collected (Take, then Whole). Events of
// one delta are in order, neighbours of one kind joined.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  virtual void Chunks(size_t choice, const AnswerDelta& delta, std::vector<OrderedJson>& out) = 0;
  virtual void Take(size_t choice, const AnswerDelta& delta) = 0;
  virtual OrderedJson Whole(const Usage& usage) = 0;
  // A chunk without choices, for the usage.
  virtual OrderedJson EmptyChunk() const = 0;
};

// Appends `delta` to `to`, and joins neighbouring events of one kind.
void Append(AnswerDelta delta, AnswerDelta& to);

}  // namespace lapidary
