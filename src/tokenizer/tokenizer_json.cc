#include "tokenizer/tokenizer_json.h"

#include <simdjson.h>

#include <memory>

#include "base/error.h"
#include "tokenizer/vocabulary.h"

namespace lapidary {
namespace {

using simdjson::ondemand::json_type;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

// Reads in one pass over the text, in whatever order the parts come. simdjson's errors pass through as exceptions;
// `part_` says what was being read.
class Reader {
 public:
  Reader(TokenizerJson& out, const std::string& where) : out_(out), where_(where) {}

  void Read(simdjson::padded_string_view text) {
    const auto parser = std::make_shared<simdjson::ondemand::parser>();
    out_.storage = parser;  // owns the unescaped texts
    simdjson::ondemand::document document = parser->iterate(text).value();
    object top = document.get_object();
    for (auto field : top) ReadPart(field.unescaped_key(), field.value());
    part_ = "the end";
    if (document.current_location().error() == simdjson::SUCCESS) Corrupt("found more text after the object");
    if (!saw_model_) Corrupt("found no model");
    if (!saw_normalizer_) CheckNormalizer("null", where_);
    if (!saw_decoder_) CheckDecoder("null", where_);
  }

  const char* part() const { return part_; }

 private:
  [[noreturn]] void Corrupt(const std::string& what) const {
    Throw(ErrorKind::kCorruptFile, where_ + ": " + part_ + ": " + what);
  }

  [[noreturn]] void Unsupported(const std::string& what) const {
    Throw(ErrorKind::kUnsupported, where_ + ": " + part_ + ": " + what);
  }

  void ReadPart(std::string_view key, value json) {
    part_ = "the object";
    if (key == "model") {
      saw_model_ = true;
      ReadModel(json.get_object());
    } else if (key == "normalizer") {
      saw_normalizer_ = true;
      CheckNormalizer(JsonText(json), where_);
    } else if (key == "pre_tokenizer") {
      CheckPreTokenizer(JsonText(json), where_);
    } else if (key == "decoder") {
      saw_decoder_ = true;
      CheckDecoder(JsonText(json), where_);
    } else if (key == "post_processor") {
      out_.bos_token = ReadPostProcessor(JsonText(json), where_);
    } else if (key == "added_tokens") {
      out_.added_tokens = ReadAddedTokens(JsonText(json), where_);
    }
  }

  static std::string_view JsonText(value json) { return simdjson::to_json_string(json); }

  void ReadModel(object model) {
    part_ = "model";
    for (auto field : model) {
      const std::string_view key = field.unescaped_key();
      ReadModelPart(key, field.value());
      part_ = "model";
    }
    if (!saw_type_) Corrupt("found no type, wanted \"BPE\"");
    if (!saw_vocabulary_) Corrupt("found no vocab");
    if (!saw_merges_) Corrupt("found no merges");
  }

  void ReadModelPart(std::string_view key, value json) {
    if (key == "type") {
      part_ = "model.type";
      saw_type_ = true;
      const std::string_view type = json.get_string();
      if (type != "BPE") Unsupported("found " + Quoted(type) + ", wanted \"BPE\"");
    } else if (key == "vocab") {
      part_ = "model.vocab";
      saw_vocabulary_ = true;
      ReadVocabulary(json.get_object());
    } else if (key == "merges") {
      part_ = "model.merges";
      saw_merges_ = true;
      ReadMerges(json.get_array());
    } else {
      ReadSetting(key, json);
    }
  }

  void ReadSetting(std::string_view key, value json) {
    if (key == "unk_token") {
      part_ = "model.unk_token";
      if (!json.is_null()) out_.unknown_token = std::string(json.get_string().value());
    } else if (key == "fuse_unk") {
      part_ = "model.fuse_unk";
      out_.fuse_unknown = !json.is_null() && json.get_bool();
    } else if (key == "byte_fallback") {
      part_ = "model.byte_fallback";
      out_.byte_fallback = !json.is_null() && json.get_bool();
    } else if (key == "ignore_merges") {
      part_ = "model.ignore_merges";
      out_.ignore_merges = !json.is_null() && json.get_bool();
    } else if (key == "dropout") {
      part_ = "model.dropout";
      if (!json.is_null() && json.get_double() != 0.0) Unsupported("found a number above 0, wanted none");
    } else if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
      part_ = key[0] == 'c' ? "model.continuing_subword_prefix" : "model.end_of_word_suffix";
      if (!json.is_null() && !json.get_string().value().empty()) Unsupported("found a text, wanted none");
    }
  }

  void ReadVocabulary(object vocabulary) {
    out_.vocabulary.clear();
    for (auto field : vocabulary) {
      const std::string_view text = field.unescaped_key();
      const int64_t id = field.value().get_int64();
      if (id < 0 || id > kMaxTokenId) {
        Corrupt(Quoted(text) + ": found id " + std::to_string(id) + ", wanted [0, " + std::to_string(kMaxTokenId) +
                "]");
      }
      out_.vocabulary.push_back({text, HashText(text), static_cast<int32_t>(id)});
    }
  }

  void ReadMerges(simdjson::ondemand::array merges) {
    out_.merges.clear();
    for (auto item : merges) {
      value merge = item.value();
      if (merge.type() == json_type::string) {
        const std::string_view line = merge.get_string();
        if (!line.starts_with("#version")) AddMergeLine(line);
      } else {
        AddMergePair(merge.get_array());
      }
    }
  }

  void AddMergeLine(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      Corrupt("found " + Quoted(line) + " as number " + std::to_string(out_.merges.size()) + ", wanted two texts");
    }
    AddMerge(line.substr(0, space), line.substr(space + 1));
  }

  void AddMergePair(simdjson::ondemand::array pair) {
    std::string_view texts[2];
    size_t count = 0;
    for (auto text : pair) {
      const std::string_view next = text.get_string();
      if (count < 2) texts[count] = next;
      ++count;
    }
    if (count != 2) {
      Corrupt("found " + std::to_string(count) + " texts as number " + std::to_string(out_.merges.size()) +
              ", wanted two");
    }
    AddMerge(texts[0], texts[1]);
  }

  void AddMerge(std::string_view left, std::string_view right) {
    out_.merges.push_back({left, right, HashText(left), HashText(right)});
  }

  TokenizerJson& out_;
  const std::string& where_;
  const char* part_ = "the object";
  bool saw_model_ = false;
  bool saw_normalizer_ = false;
  bool saw_decoder_ = false;
  bool saw_type_ = false;
  bool saw_vocabulary_ = false;
  bool saw_merges_ = false;
};

}  // namespace

TokenizerJson TokenizerJson::Parse(std::string_view text, const std::string& where) {
  TokenizerJson json;
  Reader reader(json, where);
  try {
    const simdjson::padded_string padded(text);
    reader.Read(padded);
  } catch (const simdjson::simdjson_error& error) {
    Throw(ErrorKind::kCorruptFile, where + ": " + reader.part() + ": not what a tokenizer.json holds: " + error.what());
  }
  return json;
}

}  // namespace lapidary
