#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "chat/chat_template.h"

namespace lapidary {
namespace {

// FNV-1a over all that is not white space: line ends and indentation do not make another template.
uint64_t Fingerprint(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) continue;
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// Google's templates of 2026-07-09.
constexpr uint64_t kSmallFingerprint = 0xb58b45356c0b17db;
constexpr uint64_t kLargeFingerprint = 0x5202d6d37dc1c442;

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

const char* NameOf(ChatVariant variant) { return variant == ChatVariant::kSmall ? "small" : "large"; }

// The chat_template of a tokenizer_config.json: a string, or a list of named ones of which "default" counts.
std::optional<std::string> TemplateOfTokenizerConfig(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json config = ParseJson(ReadFile(path), path);
  if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
  const Json& found = config["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  if (!found.is_array()) return std::nullopt;
  for (const Json& entry : found) {
    const bool is_default = entry.is_object() && entry.value("name", Json()) == "default";
    if (is_default && entry.value("template", Json()).is_string()) return entry["template"].get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

ChatTemplateChoice RecogniseChatTemplate(std::string_view jinja, bool has_per_layer_inputs) {
  const uint64_t fingerprint = Fingerprint(jinja);
  if (fingerprint == kSmallFingerprint) return {ChatVariant::kSmall, ""};
  if (fingerprint == kLargeFingerprint) return {ChatVariant::kLarge, ""};
  const bool is_gemma4 = Contains(jinja, "<|turn>") && Contains(jinja, "<turn|>") && Contains(jinja, "<|think|>") &&
                         Contains(jinja, "<|tool_call>call:");
  if (is_gemma4) {
    const bool ends_with_empty_thought = Contains(jinja, "'<|channel>thought\\n<channel|>'");
    const ChatVariant variant = ends_with_empty_thought ? ChatVariant::kLarge : ChatVariant::kSmall;
    return {variant,
            std::string("chat template: found another version of Gemma 4's, wanted that of 2026-07-09, whose ") +
                NameOf(variant) + " form is used: prompts may differ from this model's own"};
  }
  const ChatVariant variant = has_per_layer_inputs ? ChatVariant::kSmall : ChatVariant::kLarge;
  return {variant, std::string("chat template: found an unknown one, wanted Gemma 4's, whose ") + NameOf(variant) +
                       " form is used: prompts may differ from this model's own"};
}

ChatTemplateChoice ChooseChatTemplate(const std::string& folder, bool has_per_layer_inputs) {
  const std::string path = folder + "/chat_template.jinja";
  if (std::filesystem::exists(path)) return RecogniseChatTemplate(ReadFile(path), has_per_layer_inputs);
  const std::optional<std::string> found = TemplateOfTokenizerConfig(folder + "/tokenizer_config.json");
  if (found) return RecogniseChatTemplate(*found, has_per_layer_inputs);
  return {has_per_layer_inputs ? ChatVariant::kSmall : ChatVariant::kLarge, ""};
}

}  // namespace lapidary
