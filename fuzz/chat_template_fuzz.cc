#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "chat/chat_template.h"

namespace {

void Render(const lapidary::OrderedJson& json) {
  lapidary::ChatRequest request;
  request.messages = json["messages"];
  if (json.contains("tools")) request.tools = json["tools"];
  request.enable_thinking = json.contains("enable_thinking");
  request.preserve_thinking = json.contains("preserve_thinking");
  request.add_generation_prompt = !json.contains("add_generation_prompt");
  const lapidary::ChatPrompt prompt = lapidary::ChatTemplate(lapidary::ChatVariant::kLarge).Render(request);
  if (!prompt.Text().starts_with("<bos>")) std::abort();
  bool after_text = false;
  for (const lapidary::PromptPiece& piece : prompt.pieces) {
    if (piece.text.empty() || (after_text && !piece.is_marker)) std::abort();
    if (piece.is_marker && !(piece.text.starts_with('<') && piece.text.ends_with('>'))) std::abort();
    after_text = !piece.is_marker;
  }
}

}  // namespace

// Any JSON is either a prompt in whole pieces or an Error of one line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    lapidary::RecogniseChatTemplate(text, true);
    const lapidary::OrderedJson json = lapidary::ParseOrderedJson(text, "request");
    if (json.is_object() && json.contains("messages")) Render(json);
  } catch (const lapidary::Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
