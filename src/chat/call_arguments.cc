#include "chat/call_arguments.h"

#include <charconv>
#include <cstdio>
#include <utility>

#include "base/json.h"

namespace lapidary {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

size_t SkipDigits(std::string_view text, size_t at) {
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at;
}

// Longer ones are strings: what has been looked at stays linear in the text.
constexpr size_t kMaxNumberBytes = 1000;
constexpr size_t kMaxBareKeyBytes = 128;

// A number in JSON's grammar (RFC 8259, section 6) that a double can hold.
bool IsJsonNumber(std::string_view text) {
  if (text.size() > kMaxNumberBytes) return false;
  size_t at = text.starts_with('-') ? 1 : 0;
  const size_t whole = SkipDigits(text, at);
  if (whole == at || (text[at] == '0' && whole > at + 1)) return false;
  at = whole;
  if (at < text.size() && text[at] == '.') {
    const size_t end = SkipDigits(text, at + 1);
    if (end == at + 1) return false;
    at = end;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t end = SkipDigits(text, at);
    if (end == at) return false;
    at = end;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return at == text.size() && error == std::errc();
}

// The JSON of a value that needs no quotes, or "".
std::string_view ScalarJson(std::string_view text) {
  if (text == "true" || text == "True") return "true";
  if (text == "false" || text == "False") return "false";
  if (text == "null" || text == "None") return "null";
  return IsJsonNumber(text) ? text : std::string_view();
}

bool LooksLikeKey(std::string_view text) {
  if (text.empty() || IsDigit(text.front())) return false;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
    if (!is_letter && !IsDigit(c) && c != '_' && c != '-' && c != '.') return false;
  }
  return true;
}

// What a text in JSON's quotes says; `raw` begins with the opening quote.
std::string FromJsonQuotes(std::string_view raw) {
  const Json value = Json::parse(raw.begin(), raw.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_string()) return value.get<std::string>();
  raw.remove_prefix(1);
  if (raw.ends_with('"')) raw.remove_suffix(1);
  return std::string(raw);
}

void AppendEscaped(std::string& json, std::string_view text) {
  for (const char c : text) {
    char escape[8] = {};
    switch (c) {
      case '"':
        json += "\\\"";
        break;
      case '\\':
        json += "\\\\";
        break;
      case '\n':
        json += "\\n";
        break;
      case '\r':
        json += "\\r";
        break;
      case '\t':
        json += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
          json += escape;
        } else {
          json += c;
        }
    }
  }
}

}  // namespace

std::string QuoteJson(std::string_view text) {
  std::string json = "\"";
  AppendEscaped(json, text);
  return json + "\"";
}

CallArguments::CallArguments() : levels_(1) { Emit("{"); }

std::string CallArguments::Take() { return std::exchange(json_, {}); }

void CallArguments::Emit(std::string_view json) {
  if (muted_level_ == 0) json_ += json;
}

void CallArguments::AddText(std::string_view text) {
  for (const char c : text) Add(c);
}

void CallArguments::Add(char c) {
  switch (state_) {
    case State::kKey:
      return AddToKey(c);
    case State::kQuotedKey:
      key_ += c;
      return;
    case State::kAfterKey:
      return AddAfterKey(c);
    case State::kValue:
      return AddToValue(c);
    case State::kString:
      if (muted_level_ == 0) AppendEscaped(json_, std::string_view(&c, 1));
      return;
    case State::kBare:
      return AddToBare(c);
    case State::kJsonString:
      return AddToJsonString(c);
    case State::kAfterValue:
      return AddAfterValue(c);
    case State::kClosed:
      return;
  }
}

void CallArguments::AddQuoteMarker() {
  switch (state_) {
    case State::kKey:
      if (TrimBlanks(key_).empty()) {
        key_.clear();
        state_ = State::kQuotedKey;
      }
      return;
    case State::kQuotedKey:
      state_ = State::kAfterKey;
      return;
    case State::kValue:
      BeginValue();
      Emit("\"");
      state_ = State::kString;
      return;
    case State::kString:
      Emit("\"");
      return EndValue();
    case State::kBare:
      return PutString(std::exchange(text_, {}));
    case State::kJsonString:
      return EndJsonString();
    case State::kAfterKey:
    case State::kAfterValue:
    case State::kClosed:
      return;
  }
}

void CallArguments::AddToKey(char c) {
  if (c == ':') {
    key_ = TrimBlanks(key_);
    state_ = State::kValue;
  } else if (c == ',') {
    key_.clear();
  } else if (c == '}' || c == ']') {
    CloseBracket(c == '}');
  } else if (c == '{' || c == '[') {
    key_ = TrimBlanks(key_);
    if (!key_.empty()) Open(c == '{');  // the colon is missing
  } else if (c == '"' && TrimBlanks(key_).empty()) {
    json_string_is_key_ = true;
    text_ = c;
    state_ = State::kJsonString;
  } else {
    key_ += c;
  }
}

void CallArguments::AddAfterKey(char c) {
  if (c == ':') {
    state_ = State::kValue;
  } else if (c == '{' || c == '[') {
    Open(c == '{');
  } else if (c == '}' || c == ']') {
    CloseBracket(c == '}');
  } else if (c == ',') {
    key_.clear();
    state_ = State::kKey;
  }
}

void CallArguments::AddToValue(char c) {
  if (IsBlank(c) || c == ':') return;
  if (c == '{' || c == '[') {
    Open(c == '{');
  } else if (c == '}' || c == ']') {
    if (in_object() && HasOpen(c == '}')) PutNull();
    CloseBracket(c == '}');
  } else if (c == ',') {
    if (in_object()) PutNull();
    state_ = in_object() ? State::kKey : State::kValue;
  } else if (c == '"') {
    json_string_is_key_ = false;
    text_ = c;
    state_ = State::kJsonString;
  } else {
    text_ = c;
    last_comma_ = std::string::npos;
    state_ = State::kBare;
  }
}

void CallArguments::AddToBare(char c) {
  const bool is_closer = c == '}' || (c == ']' && HasOpen(false));
  if (is_closer) {
    EndBare(std::exchange(text_, {}));
    CloseBracket(c == '}');
  } else if (c == ',' && (!in_object() || !ScalarJson(TrimBlanks(text_)).empty())) {
    EndBare(std::exchange(text_, {}));
    AddAfterValue(c);
  } else if (c != ':' || !SplitBareAtKey()) {
    if (c == ',') last_comma_ = text_.size();
    text_ += c;
  }
}

// "first, second" and then a colon: "first" was the value, and "second" is the next key.
bool CallArguments::SplitBareAtKey() {
  const size_t comma = last_comma_;
  if (!in_object() || comma == std::string::npos || text_.size() - comma > kMaxBareKeyBytes) return false;
  const std::string next(TrimBlanks(std::string_view(text_).substr(comma + 1)));
  if (!LooksLikeKey(next)) return false;
  EndBare(std::exchange(text_, {}).substr(0, comma));
  key_ = next;
  state_ = State::kValue;
  return true;
}

void CallArguments::EndBare(std::string_view text) {
  const std::string_view trimmed = TrimBlanks(text);
  const std::string_view scalar = ScalarJson(trimmed);
  if (scalar.empty()) {
    PutString(trimmed);
  } else {
    PutScalar(scalar);
  }
}

void CallArguments::AddToJsonString(char c) {
  text_ += c;
  if (c != '"') return;
  size_t slashes = 0;
  while (text_[text_.size() - 2 - slashes] == '\\') ++slashes;
  if (slashes % 2 == 0) EndJsonString();
}

void CallArguments::EndJsonString() {
  const std::string text = FromJsonQuotes(std::exchange(text_, {}));
  if (!json_string_is_key_) return PutString(text);
  key_ = text;
  state_ = State::kAfterKey;
}

void CallArguments::AddAfterValue(char c) {
  if (c == ',') {
    state_ = in_object() ? State::kKey : State::kValue;
  } else if (c == '}' || c == ']') {
    CloseBracket(c == '}');
  }
}

bool CallArguments::HasOpen(bool object) const { return object ? !levels_.empty() : open_arrays_ > 0; }

// Writes what stands before a value: a comma, in an object the key. The second value of a key is left out.
void CallArguments::BeginValue() {
  Level& level = levels_.back();
  if (level.is_object && muted_level_ == 0 && !level.keys.insert(key_).second) muted_level_ = levels_.size();
  if (level.has_entries) Emit(",");
  if (muted_level_ == 0) level.has_entries = true;
  if (level.is_object) Emit(QuoteJson(key_) + ":");
  key_.clear();
}

void CallArguments::EndValue() {
  if (muted_level_ == levels_.size()) muted_level_ = 0;
  state_ = State::kAfterValue;
}

void CallArguments::PutScalar(std::string_view json) {
  BeginValue();
  Emit(json);
  EndValue();
}

void CallArguments::PutString(std::string_view text) { PutScalar(QuoteJson(text)); }

void CallArguments::Open(bool object) {
  BeginValue();
  if (levels_.size() >= kMaxDepth && muted_level_ == 0) {
    Emit("null");
    muted_level_ = levels_.size();
  }
  Emit(object ? "{" : "[");
  levels_.push_back({object});
  if (!object) ++open_arrays_;
  state_ = object ? State::kKey : State::kValue;
}

void CallArguments::PopLevel() {
  Emit(levels_.back().is_object ? "}" : "]");
  if (!levels_.back().is_object) --open_arrays_;
  levels_.pop_back();
  EndValue();
}

void CallArguments::CloseBracket(bool object) {
  if (!HasOpen(object)) return;
  key_.clear();
  while (levels_.back().is_object != object) PopLevel();
  PopLevel();
  if (levels_.empty()) state_ = State::kClosed;
}

void CallArguments::Close() {
  if (closed()) return;
  if (state_ == State::kString) AddQuoteMarker();
  if (state_ == State::kBare) EndBare(std::exchange(text_, {}));
  if (state_ == State::kJsonString) EndJsonString();
  if (state_ == State::kValue && in_object()) PutNull();
  while (!levels_.empty()) PopLevel();
  state_ = State::kClosed;
}

}  // namespace lapidary
