#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chat/ordered_json.h"
#include "chat/prompt.h"

namespace lapidary {

// Gemma 4 has two templates. They differ in one thing: with thinking off, kLarge ends the prompt with an empty thought.
enum class ChatVariant : uint8_t {
  kSmall,  // E2B, E4B
  kLarge,  // 12B and up
};

struct ChatRequest {
  // Both as in OpenAI's chat completions: messages with role, content (a string, null, or parts), reasoning or
  // reasoning_content, tool_calls, tool_call_id, name; besides, Gemma's own tool_responses. `arguments` of a call may
  // be an object, null, or a string holding JSON ("" is no arguments).
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools = OrderedJson::array();  // null is none
  bool enable_thinking = false;
  bool add_generation_prompt = true;
  bool preserve_thinking = false;  // keeps the thoughts of earlier turns that called tools
};

// Renders what Gemma 4's chat template prints for the same request, byte for byte. Immutable, any thread may call.
//
// It is as lenient as the template: content of an unknown kind prints nothing, a tool message that follows no call is
// left out, any role is a turn. Who takes requests from outside checks them before.
class ChatTemplate {
 public:
  explicit ChatTemplate(ChatVariant variant) : variant_(variant) {}

  // Throws Error kInvalidArgument where the template raises an exception: the message names the place, such as
  // "messages[2].tool_calls[0].function.arguments", what was found and wanted. Takes time linear in the request.
  ChatPrompt Render(const ChatRequest& request) const;

  ChatVariant variant() const { return variant_; }

 private:
  ChatVariant variant_;
};

// Makes the answer begin with a tool call (tool_choice "required", or a named function): appends the call's opening to
// a prompt that ends with the generation prompt, and leaves the thought channel first when the prompt ends inside it
// (so starts_in_reasoning becomes false). Returns the opening as text: it is part of the answer, so Push it into the
// ChatParser before anything the model says. Without `name` the model chooses the function. Throws Error
// kInvalidArgument for a name that cannot stand in a call: empty, with white space, control characters, braces or '<'.
std::string ForceToolCall(ChatPrompt& prompt, const std::optional<std::string>& name);

struct ChatTemplateChoice {
  ChatVariant variant = ChatVariant::kSmall;
  std::string warning;  // one line for the user; empty when the model's template is one that Render knows
};

// Which variant a model folder wants: by its chat_template.jinja, or the chat_template of its tokenizer_config.json,
// when that is recognised; else kSmall for a model with per-layer inputs and kLarge for others. No template at all is
// no reason to warn.
ChatTemplateChoice ChooseChatTemplate(const std::string& folder, bool has_per_layer_inputs);

// The same for the text of a template.
ChatTemplateChoice RecogniseChatTemplate(std::string_view jinja, bool has_per_layer_inputs);

}  // namespace lapidary
