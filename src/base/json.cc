#include "base/json.h"

#include <unordered_set>
#include <vector>

#include "base/error.h"

namespace lapidary {
namespace {

// The keys met so far in each open object; refuses depth and repeated keys as soon as they appear.
class KeyGuard {
 public:
  explicit KeyGuard(const std::string& what) : what_(what) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (depth > kMaxJsonDepth) {
      Throw(ErrorKind::kCorruptFile,
            what_ + ": found JSON nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    if (event == Json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string& key = value.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) {
        Throw(ErrorKind::kCorruptFile, what_ + ": found the key \"" + Printable(key) + "\" twice in one JSON object");
      }
    }
    return true;
  }

 private:
  const std::string& what_;
  std::vector<std::unordered_set<std::string>> open_;
};

// Length of the well-formed UTF-8 sequence at the start of `text`; 0 when there is none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool outside = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return overlong || outside ? 0 : length;
}

// The library's messages begin with "[json.exception.<class>.<number>] ".
std::string_view WithoutClass(std::string_view message) {
  const size_t end = message.find("] ");
  return message.starts_with("[json.exception.") && end != std::string_view::npos ? message.substr(end + 2) : message;
}

}  // namespace

Json ParseJson(std::string_view text, const std::string& what) {
  // The library would take a zero byte for the end of the text.
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    Throw(ErrorKind::kCorruptFile, what + ": not valid JSON: found a zero byte at offset " + std::to_string(zero));
  }
  KeyGuard guard(what);
  try {
    return Json::parse(text.begin(), text.end(),
                       [&](int depth, Json::parse_event_t event, Json& value) { return guard(depth, event, value); });
  } catch (const Json::exception& error) {
    // The library's message repeats the input up to the fault, which may be megabytes: keep its head.
    Throw(ErrorKind::kCorruptFile, what + ": not valid JSON: " + Printable(WithoutClass(error.what()), 160));
  }
}

std::string Printable(std::string_view text, size_t limit) {
  std::string line;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const bool plain = length > 1 || (length == 1 && text[0] >= 0x20 && text[0] != 0x7F);
    if (line.size() + (length == 0 ? 1 : length) > limit) return line + "...";
    line += plain ? text.substr(0, length) : std::string_view("?");
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return line;
}

}  // namespace lapidary
