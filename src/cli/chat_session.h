#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "engine/engine.h"
#include "generation/chat_decoder.h"
#include "generation/chat_prompt.h"
#include "generation/generate_options.h"
#include "generation/text_model.h"

namespace lapidary {

struct ChatSettings {
  std::string system{};  // empty: none
  bool enable_thinking = false;
  SpecialText special_text = SpecialText::kProtect;
  GenerateOptions generate{};  // how tokens are drawn, and how many
};

// One conversation and the model that answers in it. The whole conversation is the prompt of each turn; what the engine
// still has of it is not computed again. Not thread-safe; the backend must outlive it.
class ChatSession {
 public:
  // Throws what TextModel and Engine throw, and Error kNotFound when the folder has no tokenizer.
  ChatSession(const std::string& folder, Backend& backend, const EngineOptions& engine, ChatVariant variant,
              ChatSettings settings);

  // Called for each event, and between steps without one. Returning false stops the answer.
  using OnEvent = std::function<bool(const ChatEvent* event)>;

  // Asks, and keeps the question and what has been answered. Throws what Engine throws (such as kInvalidArgument when
  // the conversation does not fit the context); the conversation is then as before.
  FinishReason Ask(const std::string& question, const OnEvent& on_event);
  // Forgets the conversation; the system message stays.
  void Reset();

  const OrderedJson& messages() const { return request_.messages; }

 private:
  FinishReason Answer(std::vector<int32_t> prompt, ChatDecoder& decoder, const OnEvent& on_event);

  TextModel model_;
  const Tokenizer& tokenizer_;
  Engine engine_;
  ChatTemplate template_;
  ChatSettings settings_;
  ChatRequest request_;
};

}  // namespace lapidary
