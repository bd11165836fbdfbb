#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

inline Json SmallAddedToken(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// A tokenizer.json of Gemma's kind. Ids: 0 <pad>, 1 <eos>, 2 <bos>, 3 <unk>, 4..259 the bytes, then the pieces below;
// added tokens 300 <|turn>, 301 <|turn, both special, and 302 [x], not special.
inline Json SmallTokenizerJson() {
  Json vocabulary = {{"<pad>", 0}, {"<eos>", 1}, {"<bos>", 2}, {"<unk>", 3}};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    vocabulary[text] = 4 + byte;
  }
  int id = 260;
  for (const char* piece : {"\u2581", "a", "b", "c", "ab", "bc", "abc", "aa", "aaaa", "\u2581a", "\u2581\u2581", "\n",
                            "<", "|", ">", "[", "]", "x", "\u00e9"}) {
    vocabulary[piece] = id++;
  }
  Json pairs = Json::array();
  for (const auto& [left, right] : std::vector<std::pair<const char*, const char*>>{
           {"b", "c"}, {"a", "b"}, {"ab", "c"}, {"a", "a"}, {"aa", "aa"}, {"\u2581", "\u2581"}, {"\u2581", "a"}}) {
    pairs.push_back({left, right});
  }
  const Json space = {{"String", " "}};
  const Json mark = {{"String", "\u2581"}};
  const Json bos = {{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {
      {"version", "1.0"},
      {"added_tokens",
       {SmallAddedToken(0, "<pad>", true), SmallAddedToken(1, "<eos>", true), SmallAddedToken(2, "<bos>", true),
        SmallAddedToken(300, "<|turn>", true), SmallAddedToken(301, "<|turn", true),
        SmallAddedToken(302, "[x]", false)}},
      {"normalizer", {{"type", "Replace"}, {"pattern", space}, {"content", "\u2581"}}},
      {"pre_tokenizer", {{"type", "Split"}, {"pattern", space}, {"behavior", "MergedWithPrevious"}, {"invert", false}}},
      {"post_processor", {{"type", "TemplateProcessing"}, {"single", {bos, text}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {Json{{"type", "Replace"}, {"pattern", mark}, {"content", " "}}, Json{{"type", "ByteFallback"}},
          Json{{"type", "Fuse"}}}}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocabulary},
        {"merges", pairs}}},
  };
}

inline Tokenizer ParseTokenizer(const Json& json) { return Tokenizer::Parse(json.dump(), "small"); }

// Where data too large for the project lies; tests that need it are skipped without it.
inline std::filesystem::path SharedFolder() {
  const char* folder = std::getenv("LAPIDARY_SHARED");
  return folder != nullptr ? folder : LAPIDARY_SOURCE_DIR "/../shared";
}

// A tokenizer of the real size, or null when it is not there. Loaded once.
inline const Tokenizer* RealTokenizer() {
  const auto path = SharedFolder() / "tokenizer/gemma4/tokenizer.json";
  static const std::optional<Tokenizer> tokenizer =
      std::filesystem::exists(path) ? std::optional(Tokenizer::Load(path.string())) : std::nullopt;
  return tokenizer ? &*tokenizer : nullptr;
}

}  // namespace lapidary
