// The small parts of tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder, added_tokens.

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/tokenizer_json.h"

namespace lapidary {
namespace {

std::string Cut(std::string text) {
  constexpr size_t kLimit = 160;
  if (text.size() > kLimit) text = text.substr(0, kLimit) + "...";
  return text;
}

std::string Dump(const Json& json) { return Cut(json.dump(-1, ' ', false, Json::error_handler_t::replace)); }

[[noreturn]] void ThrowUnsupported(const std::string& where, const char* part, const Json& found, const char* wanted) {
  Throw(ErrorKind::kUnsupported, where + ": " + part + ": found " + Dump(found) + ", wanted " + wanted);
}

// Whether `json` is a Replace of one string by another.
bool IsReplace(const Json& json, std::string_view from, std::string_view to) {
  return json.is_object() && json.value("type", Json()) == "Replace" && json.value("content", Json()) == to &&
         json.value("pattern", Json()) == Json{{"String", from}};
}

bool IsType(const Json& json, std::string_view type) { return json.is_object() && json.value("type", Json()) == type; }

// A Sequence of one step is that step.
Json Unwrapped(const Json& json, const char* steps) {
  if (!IsType(json, "Sequence")) return json;
  const Json inner = json.value(steps, Json());
  return inner.is_array() && inner.size() == 1 ? inner[0] : json;
}

bool ReadFlag(const Json& token, const char* name, const std::string& where) {
  const auto found = token.find(name);
  if (found == token.end()) return false;
  if (!found->is_boolean()) {
    Throw(ErrorKind::kCorruptFile,
          where + ": added_tokens: " + name + ": found " + Dump(*found) + ", wanted a boolean");
  }
  return found->get<bool>();
}

AddedToken ReadAddedToken(const Json& json, const std::string& where) {
  const Json id = json.is_object() ? json.value("id", Json()) : Json();
  const Json content = json.is_object() ? json.value("content", Json()) : Json();
  const bool good_id = id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(kMaxTokenId);
  if (!good_id || !content.is_string() || content.get_ref<const std::string&>().empty()) {
    Throw(ErrorKind::kCorruptFile, where + ": added_tokens: found " + Dump(json) + ", wanted an id in [0, " +
                                       std::to_string(kMaxTokenId) + "] and a content that is not empty");
  }
  AddedToken token;
  token.content = content.get<std::string>();
  token.id = id.get<int32_t>();
  token.single_word = ReadFlag(json, "single_word", where);
  token.lstrip = ReadFlag(json, "lstrip", where);
  token.rstrip = ReadFlag(json, "rstrip", where);
  token.normalized = ReadFlag(json, "normalized", where);
  token.special = ReadFlag(json, "special", where);
  return token;
}

}  // namespace

std::string Quoted(std::string_view text) {
  constexpr size_t kLimit = 60;
  const std::string dots = text.size() > kLimit ? "..." : "";
  return Json(std::string(text.substr(0, kLimit))).dump(-1, ' ', false, Json::error_handler_t::replace) + dots;
}

void CheckNormalizer(std::string_view json, const std::string& where) {
  const Json found = Unwrapped(ParseJson(json, where + ": normalizer"), "normalizers");
  if (!IsReplace(found, " ", "\u2581")) ThrowUnsupported(where, "normalizer", found, "Replace of \" \" by U+2581");
}

void CheckPreTokenizer(std::string_view json, const std::string& where) {
  const Json found = Unwrapped(ParseJson(json, where + ": pre_tokenizer"), "pretokenizers");
  // The normalizer leaves no space, so what a Split at spaces does with them is all the same.
  const bool harmless = IsType(found, "Split") && found.value("pattern", Json()) == Json{{"String", " "}} &&
                        found.value("invert", Json(false)) == Json(false);
  if (!found.is_null() && !harmless) ThrowUnsupported(where, "pre_tokenizer", found, "none or Split at \" \"");
}

void CheckDecoder(std::string_view json, const std::string& where) {
  const Json found = ParseJson(json, where + ": decoder");
  const Json steps = IsType(found, "Sequence") ? found.value("decoders", Json()) : Json();
  const bool good = steps.is_array() && steps.size() == 3 && IsReplace(steps[0], "\u2581", " ") &&
                    IsType(steps[1], "ByteFallback") && IsType(steps[2], "Fuse");
  if (!good) {
    ThrowUnsupported(where, "decoder", found, "Sequence of Replace of U+2581 by \" \", ByteFallback and Fuse");
  }
}

std::optional<std::string> ReadPostProcessor(std::string_view json, const std::string& where) {
  constexpr const char* kWanted = "none or TemplateProcessing of at most one special token before the text";
  const Json found = Unwrapped(ParseJson(json, where + ": post_processor"), "processors");
  if (found.is_null()) return std::nullopt;
  const Json single = IsType(found, "TemplateProcessing") ? found.value("single", Json()) : Json();
  const bool good_size = single.is_array() && (single.size() == 1 || single.size() == 2);
  if (!good_size || !single.back().is_object() || !single.back().contains("Sequence")) {
    ThrowUnsupported(where, "post_processor", found, kWanted);
  }
  if (single.size() == 1) return std::nullopt;
  const Json special = single[0].is_object() ? single[0].value("SpecialToken", Json()) : Json();
  const Json name = special.is_object() ? special.value("id", Json()) : Json();
  if (!name.is_string()) ThrowUnsupported(where, "post_processor", found, kWanted);
  return name.get<std::string>();
}

std::vector<AddedToken> ReadAddedTokens(std::string_view json, const std::string& where) {
  const Json found = ParseJson(json, where + ": added_tokens");
  std::vector<AddedToken> tokens;
  if (found.is_null()) return tokens;
  if (!found.is_array()) {
    Throw(ErrorKind::kCorruptFile, where + ": added_tokens: found " + Dump(found) + ", wanted an array");
  }
  tokens.reserve(found.size());
  for (const Json& token : found) tokens.push_back(ReadAddedToken(token, where));
  return tokens;
}

}  // namespace lapidary
