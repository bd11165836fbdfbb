#include "cli/chat_session.h"

#include <utility>

namespace lapidary {
namespace {

// Whatever way an answer ends, the engine is rid of its sequence.
class Running {
 public:
  Running(Engine& engine, SequenceRequest request) : engine_(engine), id_(engine.Add(std::move(request))) {}
  ~Running() { engine_.Cancel(id_); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  SequenceId id() const { return id_; }

 private:
  Engine& engine_;
  SequenceId id_;
};

bool Tell(const std::vector<ChatEvent>& events, const ChatSession::OnEvent& on_event) {
  for (const ChatEvent& event : events) {
    if (!on_event(&event)) return false;
  }
  return true;
}

}  // namespace

ChatSession::ChatSession(const std::string& folder, Backend& backend, const EngineOptions& engine, ChatVariant variant,
                         ChatSettings settings)
    : model_(folder, backend.plan()),
      tokenizer_(model_.RequireTokenizer("to chat")),
      engine_(backend, engine),
      template_(variant),
      settings_(std::move(settings)) {
  request_.enable_thinking = settings_.enable_thinking;
  Reset();
}

void ChatSession::Reset() {
  request_.messages = OrderedJson::array();
  if (!settings_.system.empty()) {
    request_.messages.push_back({{"role", "system"}, {"content", settings_.system}});
  }
}

FinishReason ChatSession::Ask(const std::string& question, const OnEvent& on_event) {
  const OrderedJson before = request_.messages;
  request_.messages.push_back({{"role", "user"}, {"content", question}});
  try {
    const ChatPrompt prompt = template_.Render(request_);
    ChatDecoder decoder(tokenizer_, {.starts_in_reasoning = prompt.starts_in_reasoning, .tools_offered = false});
    const FinishReason finish = Answer(EncodePrompt(tokenizer_, prompt, settings_.special_text), decoder, on_event);
    OrderedJson answer = {{"role", "assistant"}, {"content", decoder.answer().content}};
    if (!decoder.answer().reasoning.empty()) answer["reasoning_content"] = decoder.answer().reasoning;
    request_.messages.push_back(std::move(answer));
    return finish;
  } catch (...) {
    request_.messages = before;
    throw;
  }
}

FinishReason ChatSession::Answer(std::vector<int32_t> prompt, ChatDecoder& decoder, const OnEvent& on_event) {
  const Running running(engine_, model_.MakeRequest(std::move(prompt), settings_.generate));
  FinishReason finish = FinishReason::kNone;
  while (finish == FinishReason::kNone) {
    bool goes_on = true;
    for (const SequenceUpdate& update : engine_.Step()) {
      if (update.id != running.id()) continue;
      for (const int32_t id : update.tokens) goes_on = goes_on && Tell(decoder.Push(id), on_event);
      finish = decoder.done() ? FinishReason::kStop : update.finish;
    }
    goes_on = goes_on && on_event(nullptr);
    if (!goes_on && finish == FinishReason::kNone) finish = FinishReason::kCancelled;
  }
  Tell(decoder.Finish(), on_event);
  return finish;
}

}  // namespace lapidary
