#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

struct ChatFormatOptions {
  AnswerHeader header;
  const Tokenizer* tokenizer = nullptr;
  size_t choices = 1;
  bool logprobs = false;
  bool token_ids = false;
};

// chat.completion and chat.completion.chunk.
class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(ChatFormatOptions options);

  void Chunks(size_t index, const AnswerDelta& delta, std::vector<OrderedJson>& out) override;
  void Take(size_t index, const AnswerDelta& delta) override;
  OrderedJson Whole(const Usage& usage) override;
  OrderedJson EmptyChunk() const override;

 private:
  struct Call {
    std::string id, name, arguments;
  };
  // What has been said so far.
  struct Choice {
    bool begun = false;
    std::string content, reasoning;
    std::vector<Call> calls;
    std::vector<std::string> call_ids;
    OrderedJson logprobs = OrderedJson::array();
    std::vector<int32_t> ids;
    std::optional<AnswerEnd> end;
  };

  OrderedJson Chunk(size_t choice, OrderedJson delta) const;
  OrderedJson DeltaOf(Choice& choice, const ChatEvent& event);
  OrderedJson Message(Choice& choice) const;

  ChatFormatOptions options_;
  std::vector<Choice> choices_;
};

}  // namespace lapidary
