#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace lapidary {

// The arguments of a call as Gemma 4 writes them -> a JSON object, while they are written. Reads leniently: there is
// JSON for any text, and what has been given out is never taken back.
//
// - Strings are raw text between quote markers. A value without an opening one is true, false, null, a number, or else
// a
//   string up to a quote marker, a bracket, or a comma that a new key follows. Strings and keys in JSON's quotes pass.
// - A closing bracket closes the innermost open one of its kind and all inside that; with none open it is passed over.
// - The first of equal keys of an object counts. What is nested deeper than kMaxDepth is null.
class CallArguments {
 public:
  static constexpr size_t kMaxDepth = 100;

  // Stands behind the opening brace.
  CallArguments();

  // More text that holds no marker; whole UTF-8 characters.
  void AddText(std::string_view text);
  void AddQuoteMarker();
  // Closes all that is open.
  void Close();

  bool closed() const { return state_ == State::kClosed; }
  // Inside a raw string.
  bool in_string() const { return state_ == State::kString || state_ == State::kQuotedKey; }
  // The JSON that has been added since the last call.
  std::string Take();

 private:
  enum class State : uint8_t {
    kKey,         // before a key or in it
    kQuotedKey,   // in a key between quote markers
    kAfterKey,    // before its colon
    kValue,       // before a value
    kString,      // in a string between quote markers
    kBare,        // in a value without quotes
    kJsonString,  // in a value or key in JSON's quotes
    kAfterValue,  // before a comma or bracket
    kClosed,
  };
  struct Level {
    bool is_object = true;
    bool has_entries = false;
    std::unordered_set<std::string> keys{};
  };

  void Add(char c);
  void AddToKey(char c);
  void AddAfterKey(char c);
  void AddToValue(char c);
  void AddToBare(char c);
  void AddToJsonString(char c);
  void AddAfterValue(char c);

  bool in_object() const { return levels_.back().is_object; }
  bool HasOpen(bool object) const;
  void BeginValue();
  void EndValue();
  void PutScalar(std::string_view json);
  void PutNull() { PutScalar("null"); }
  void PutString(std::string_view text);
  void Open(bool object);
  void PopLevel();
  void CloseBracket(bool object);
  void EndBare(std::string_view text);
  bool SplitBareAtKey();
  void EndJsonString();
  void Emit(std::string_view json);

  State state_ = State::kKey;
  std::vector<Level> levels_;  // the first is the call's object; empty once closed
  size_t open_arrays_ = 0;
  std::string key_;        // of the value to come, in an object
  std::string text_;       // of a bare value or a JSON string so far
  size_t last_comma_ = 0;  // in a bare value's text_
  bool json_string_is_key_ = false;
  size_t muted_level_ = 0;  // the value that began with so many levels open is left out; 0: none
  std::string json_;
};

// `text` as a JSON string with its quotes.
std::string QuoteJson(std::string_view text);

}  // namespace lapidary
