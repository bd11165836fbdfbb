#include "chat/chat_template.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "chat/markers.h"
#include "chat/template_values.h"
#include "chat/tool_format.h"

namespace lapidary {
namespace {

// What the template does with the message before: its prev_message_type.
enum class Last : uint8_t { kNone, kThink, kTool, kToolCall, kToolResponse };

// Cuts out what stands in the thought channel.
std::string WithoutThoughts(std::string_view text) {
  std::string kept;
  while (true) {
    const size_t close = text.find(marker::kChannelClose);
    const std::string_view part = text.substr(0, close);
    kept += part.substr(0, part.find(marker::kChannelOpen));
    if (close == std::string_view::npos) break;
    text.remove_prefix(close + marker::kChannelClose.size());
  }
  return std::string(Trim(kept));
}

std::string_view MediaMarker(TemplateValue type) {
  const std::string name = IsString(type) ? StringOf(type) : "";
  if (name == "image" || name == "image_url") return marker::kImage;
  if (name == "audio" || name == "input_audio") return marker::kAudio;
  return name == "video" ? marker::kVideo : std::string_view();
}

bool IsTextPart(TemplateValue part) {
  const TemplateValue type = Member(part, "type");
  return IsString(type) && StringOf(type) == "text";
}

// Arguments as the template wants them: a string is read as JSON first. Null: none.
OrderedJson ArgumentsOf(TemplateValue arguments, const std::string& where) {
  if (arguments == nullptr) ThrowTemplateError(where, arguments, "an object or a string holding one");
  if (!arguments->is_string()) return *arguments;
  if (Trim(StringOf(arguments)).empty()) return nullptr;
  try {
    return ParseOrderedJson(StringOf(arguments), where);
  } catch (const Error& error) {
    Throw(ErrorKind::kInvalidArgument, error.what());
  }
}

class Renderer {
 public:
  Renderer(const ChatRequest& request, ChatVariant variant, ChatPrompt& out)
      : request_(request), variant_(variant), out_(out) {}

  void Run() {
    if (!request_.messages.is_array()) ThrowTemplateError("messages", &request_.messages, "an array");
    if (!request_.tools.is_array() && !request_.tools.is_null()) {
      ThrowTemplateError("tools", &request_.tools, "an array");
    }
    ReadRoles();
    out_.AddMarker(marker::kBos);
    const bool has_system = !roles_.empty() && (roles_[0] == "system" || roles_[0] == "developer");
    AddSystemTurn(has_system);
    first_ = has_system ? 1 : 0;
    for (size_t i = first_; i < roles_.size(); ++i) {
      if (roles_[i] == "user") last_user_ = i;
    }
    for (size_t i = first_; i < roles_.size(); ++i) {
      if (roles_[i] != "tool") AddMessage(i);
    }
    if (request_.add_generation_prompt) AddGenerationPrompt();
  }

 private:
  const OrderedJson& At(size_t i) const { return request_.messages[i]; }
  static std::string Where(size_t i) { return "messages[" + std::to_string(i) + "]"; }

  void ReadRoles() {
    for (size_t i = 0; i < request_.messages.size(); ++i) {
      if (!At(i).is_object()) ThrowTemplateError(Where(i), &At(i), "an object");
      const TemplateValue role = Member(&At(i), "role");
      if (!IsString(role)) ThrowTemplateError(Where(i) + ".role", role, "a string");
      roles_.push_back(StringOf(role));
    }
  }

  void AddSystemTurn(bool has_message) {
    const bool has_tools = request_.tools.is_array() && !request_.tools.empty();
    if (!request_.enable_thinking && !has_tools && !has_message) return;
    out_.AddMarker(marker::kTurnOpen);
    out_.AddText("system\n");
    if (request_.enable_thinking) {
      out_.AddMarker(marker::kThink);
      out_.AddText("\n");
      last_ = Last::kThink;
    }
    if (has_message) AddSystemContent(Member(&At(0), "content"));
    for (size_t i = 0; has_tools && i < request_.tools.size(); ++i) {
      AddToolDeclaration(out_, request_.tools[i], "tools[" + std::to_string(i) + "]");
      last_ = Last::kTool;
    }
    AddTurnEnd();
  }

  void AddSystemContent(TemplateValue content) {
    if (IsString(content)) {
      out_.AddText(Trim(StringOf(content)));
    } else if (content != nullptr && content->is_array()) {
      for (const OrderedJson& part : *content) {
        out_.AddText(Trim(PythonStr(Member(&part, "text"))));
        out_.AddText(" ");
      }
    } else if (IsMapping(content)) {
      ThrowTemplateError(Where(0) + ".content", content, "a string or an array of parts");
    }
  }

  void AddTurnEnd() {
    out_.AddMarker(marker::kTurnClose);
    out_.AddText("\n");
  }

  void AddMessage(size_t i) {
    const OrderedJson& message = At(i);
    last_ = Last::kNone;
    const bool is_model = roles_[i] == "assistant" || roles_[i] == "model";
    if (!(is_model && last_role_ == "assistant")) {
      out_.AddMarker(marker::kTurnOpen);
      out_.AddText(is_model ? "model" : roles_[i]);
      out_.AddText("\n");
    }
    const TemplateValue calls = Member(&message, "tool_calls");
    AddThought(i, IsTruthy(calls));
    if (IsTruthy(calls)) AddCalls(*calls, Where(i) + ".tool_calls");
    const bool has_responses = AddResponses(i, calls);
    const bool has_content = AddContent(Member(&message, "content"), is_model, Where(i) + ".content");
    EndMessage(i, is_model, has_responses, has_content, IsTruthy(calls));
    last_role_ = roles_[i];
  }

  void AddThought(size_t i, bool has_calls) {
    TemplateValue thought = Member(&At(i), "reasoning");
    const char* name = ".reasoning";
    if (!IsTruthy(thought)) {
      thought = Member(&At(i), "reasoning_content");
      name = ".reasoning_content";
    }
    const bool is_open_turn = !last_user_ || i > *last_user_;
    if (!IsTruthy(thought) || !(is_open_turn || (request_.preserve_thinking && has_calls))) return;
    if (!IsString(thought)) ThrowTemplateError(Where(i) + name, thought, "a string");
    out_.AddMarker(marker::kChannelOpen);
    out_.AddText(marker::kThoughtLabel);
    out_.AddText(StringOf(thought));
    out_.AddText("\n");
    out_.AddMarker(marker::kChannelClose);
  }

  void AddCalls(const OrderedJson& calls, const std::string& where) {
    if (!calls.is_array()) ThrowTemplateError(where, &calls, "an array");
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::string place = where + "[" + std::to_string(i) + "].function";
      const TemplateValue function = Member(&calls[i], "function");
      const TemplateValue name = Member(function, "name");
      if (!IsString(name)) ThrowTemplateError(place + ".name", name, "a string");
      const OrderedJson arguments = ArgumentsOf(Member(function, "arguments"), place + ".arguments");
      out_.AddMarker(marker::kCallOpen);
      out_.AddText(marker::kCallLabel);
      out_.AddText(StringOf(name));
      out_.AddText("{");
      if (arguments.is_object()) {
        AddArguments(out_, arguments);
      } else if (!arguments.is_null()) {
        ThrowTemplateError(place + ".arguments", &arguments, "an object or a string holding one");
      }
      out_.AddText("}");
      out_.AddMarker(marker::kCallClose);
    }
    last_ = Last::kToolCall;
  }

  // What the calls gave: in Gemma's own form, or as the tool messages that follow.
  bool AddResponses(size_t i, TemplateValue calls) {
    const TemplateValue responses = Member(&At(i), "tool_responses");
    if (IsTruthy(responses)) {
      if (!responses->is_array()) ThrowTemplateError(Where(i) + ".tool_responses", responses, "an array");
      for (const OrderedJson& response : *responses) {
        const TemplateValue name = Member(&response, "name");
        if (IsTruthy(name) && !IsString(name)) ThrowTemplateError(Where(i) + ".tool_responses", name, "a name");
        AddResponse(IsTruthy(name) ? StringOf(name) : "unknown", Member(&response, "response"));
      }
      last_ = Last::kToolResponse;
      return true;
    }
    if (!IsTruthy(calls) || i + 1 >= roles_.size() || roles_[i + 1] != "tool") return false;
    // A call without an id answers to a message without one, as in the template.
    std::unordered_map<std::string, std::string> names;
    for (const OrderedJson& call : *calls) {
      names[IdOf(Member(&call, "id"))] = StringOf(Member(Member(&call, "function"), "name"));
    }
    for (size_t k = i + 1; k < roles_.size() && roles_[k] == "tool"; ++k) AddToolMessage(k, names);
    last_ = Last::kToolResponse;
    return true;
  }

  static std::string IdOf(TemplateValue id) { return id == nullptr ? "null" : id->dump(); }

  void AddToolMessage(size_t k, const std::unordered_map<std::string, std::string>& names) {
    const OrderedJson& message = At(k);
    const auto known = names.find(IdOf(Member(&message, "tool_call_id")));
    std::string name = "unknown";
    if (known != names.end()) {
      name = known->second;
    } else if (IsTruthy(Member(&message, "name"))) {
      if (!IsString(Member(&message, "name"))) {
        ThrowTemplateError(Where(k) + ".name", Member(&message, "name"), "a string");
      }
      name = StringOf(Member(&message, "name"));
    }
    const std::string where = Where(k) + ".content";
    const TemplateValue content = Member(&message, "content");
    if (IsMapping(content)) ThrowTemplateError(where, content, "a string or an array of parts");
    if (content == nullptr || !content->is_array()) {
      const OrderedJson none;
      AddResponse(name, content == nullptr ? &none : content);
      return;
    }
    const OrderedJson text = JoinedText(*content, where);
    AddResponse(name, &text);
    for (const OrderedJson& part : *content) AddMedia(out_, Member(&part, "type"));
  }

  static std::string JoinedText(const OrderedJson& parts, const std::string& where) {
    std::string joined;
    for (const OrderedJson& part : parts) {
      if (!part.is_object()) ThrowTemplateError(where, &part, "an object for each part");
      if (!IsTextPart(&part)) continue;
      const TemplateValue text = Member(&part, "text");
      if (!IsString(text)) ThrowTemplateError(where, text, "a string in each text part");
      joined += StringOf(text);
    }
    return joined;
  }

  void AddResponse(const std::string& name, TemplateValue response) {
    out_.AddMarker(marker::kResponseOpen);
    out_.AddText("response:" + name + "{");
    if (IsMapping(response)) {
      AddArguments(out_, *response);
    } else {
      out_.AddText("value:");
      AddArgument(out_, response, false);
    }
    out_.AddText("}");
    out_.AddMarker(marker::kResponseClose);
  }

  static bool AddMedia(ChatPrompt& out, TemplateValue type) {
    const std::string_view media = MediaMarker(type);
    if (media.empty()) return false;
    out.AddMarker(media);
    out.has_media = true;
    return true;
  }

  // Returns whether it is more than white space.
  bool AddContent(TemplateValue content, bool is_model, const std::string& where) {
    const auto text_of = [&](const std::string& text) {
      return is_model ? WithoutThoughts(text) : std::string(Trim(text));
    };
    if (IsString(content)) {
      const std::string text = text_of(StringOf(content));
      out_.AddText(text);
      return !text.empty();
    }
    if (IsMapping(content)) ThrowTemplateError(where, content, "a string or an array of parts");
    bool has_content = false;
    for (const OrderedJson& part : content == nullptr || !content->is_array() ? OrderedJson::array() : *content) {
      if (!part.is_object()) ThrowTemplateError(where, &part, "an object for each part");
      if (!IsTextPart(&part)) {
        has_content |= AddMedia(out_, Member(&part, "type"));
        continue;
      }
      const TemplateValue text = Member(&part, "text");
      if (is_model && !IsString(text)) ThrowTemplateError(where, text, "a string in each text part");
      const std::string kept = text_of(PythonStr(text));
      out_.AddText(kept);
      has_content |= !kept.empty();
    }
    return has_content;
  }

  void EndMessage(size_t i, bool is_model, bool has_responses, bool has_content, bool has_calls) {
    size_t next = i + 1;
    while (next < roles_.size() && roles_[next] == "tool") ++next;
    const bool has_next = next < roles_.size();
    const bool goes_on = is_model && has_next && roles_[next] == "assistant" && (!has_calls || has_responses);
    if (last_ == Last::kToolCall && !has_responses) {
      out_.AddMarker(marker::kResponseOpen);
    } else if (!goes_on && !(has_responses && !has_content && !has_next)) {
      AddTurnEnd();
    }
  }

  void AddGenerationPrompt() {
    if (last_ != Last::kToolResponse && last_ != Last::kToolCall) {
      out_.AddMarker(marker::kTurnOpen);
      out_.AddText("model\n");
      if (variant_ == ChatVariant::kLarge && !request_.enable_thinking) {
        out_.AddMarker(marker::kChannelOpen);
        out_.AddText(marker::kThoughtLabel);
        out_.AddMarker(marker::kChannelClose);
      }
    } else if (last_ == Last::kToolResponse && request_.enable_thinking) {
      out_.AddMarker(marker::kChannelOpen);
      out_.AddText(marker::kThoughtLabel);
      out_.starts_in_reasoning = true;
    }
  }

  const ChatRequest& request_;
  const ChatVariant variant_;
  ChatPrompt& out_;
  std::vector<std::string> roles_;
  size_t first_ = 0;  // after the system message
  std::optional<size_t> last_user_;
  Last last_ = Last::kNone;
  std::string last_role_;  // of the message before that is not a tool's
};

}  // namespace

ChatPrompt ChatTemplate::Render(const ChatRequest& request) const {
  ChatPrompt prompt;
  Renderer(request, variant_, prompt).Run();
  return prompt;
}

std::string ForceToolCall(ChatPrompt& prompt, const std::optional<std::string>& name) {
  std::string opening = std::string(marker::kCallLabel);
  if (name) {
    const bool is_bad =
        name->empty() || name->find_first_of("{}<") != std::string::npos ||
        std::any_of(name->begin(), name->end(), [](char c) { return static_cast<unsigned char>(c) <= ' '; });
    if (is_bad) {
      Throw(ErrorKind::kInvalidArgument, "tool name: found \"" + Printable(*name) +
                                             "\", wanted one without white space, control characters, braces and '<'");
    }
    opening += *name + "{";
  }
  if (prompt.starts_in_reasoning) prompt.AddMarker(marker::kChannelClose);
  prompt.starts_in_reasoning = false;
  prompt.AddMarker(marker::kCallOpen);
  prompt.AddText(opening);
  return std::string(marker::kCallOpen) + opening;
}

}  // namespace lapidary
