#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"

namespace lapidary {

// A tokenizer of Gemma's kind: special tokens at Gemma 4's ids, each ASCII character, all bytes, and some words.
struct SmallTokenizer {
  static constexpr int32_t kPad = 0, kEos = 1, kBos = 2, kToolResponse = 50, kTurnEnd = 106;
  static constexpr int32_t kFirstByte = 200, kFirstCharacter = 500, kFirstWord = 700;
  static constexpr int32_t kVocab = 720;

  // The word tokens, in order from kFirstWord; each is also the result of merges of its characters.
  static const std::vector<std::string>& Words() {
    static const std::vector<std::string> words = {"alpha",  " beta", " gamma", " delta", "The", " quick",
                                                   " brown", " fox",  "own",    "user\n", "done"};
    return words;
  }
  static int32_t Byte(unsigned char byte) { return kFirstByte + byte; }
  static int32_t Character(char c) { return kFirstCharacter + static_cast<unsigned char>(c); }
  static int32_t Word(const std::string& word) {
    for (size_t i = 0; i < Words().size(); ++i) {
      if (Words()[i] == word) return kFirstWord + static_cast<int32_t>(i);
    }
    return -1;
  }

  static std::string JsonText();
};

// "x y" as the vocabulary spells it.
inline std::string WithMetaSpace(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? std::string("\u2581") : std::string(1, c);
  return out;
}

inline std::string SmallTokenizer::JsonText() {
  Json vocab = Json::object(), merges = Json::array(), added = Json::array();
  const auto add_special = [&](int32_t id, const char* content) {
    vocab[content] = id;
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  };
  add_special(kPad, "<pad>");
  add_special(kEos, "<eos>");
  add_special(kBos, "<bos>");
  add_special(3, "<unk>");
  add_special(kToolResponse, "<|tool_response>");
  add_special(105, "<|turn>");
  add_special(kTurnEnd, "<turn|>");
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
    vocab[name] = kFirstByte + byte;
  }
  for (int c = 1; c < 128; ++c) {
    vocab[WithMetaSpace(std::string(1, static_cast<char>(c)))] = kFirstCharacter + c;
  }
  int32_t prefix_id = kVocab;  // pieces on the way to a word
  for (const std::string& word : Words()) {
    for (size_t n = 2; n <= word.size(); ++n) {
      const std::string left = WithMetaSpace(word.substr(0, n - 1)), right = WithMetaSpace(word.substr(n - 1, 1));
      if (vocab.contains(left + right) && n < word.size()) continue;
      merges.push_back({left, right});
      vocab[left + right] = n == word.size() ? Word(word) : prefix_id++;
    }
  }
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", "<unk>"},
                      {"fuse_unk", true},
                      {"byte_fallback", true},
                      {"ignore_merges", false},
                      {"vocab", vocab},
                      {"merges", merges},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr}};
  const Json space = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  const Json bos = {{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}},
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", Json::array({bos, text})},
        {"pair", Json::array({bos, text})},
        {"special_tokens", {{"<bos>", {{"id", "<bos>"}, {"ids", {kBos}}, {"tokens", {"<bos>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"}, {"decoders", Json::array({space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}}},
      {"model", model}};
  return json.dump();
}

// A folder for one test, gone afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "lapidary_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  void Write(const std::string& name, const std::string& text) const { std::ofstream(path_ + "/" + name) << text; }

 private:
  std::string path_;
};

}  // namespace lapidary
