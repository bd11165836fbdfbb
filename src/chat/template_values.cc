#include "chat/template_values.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace lapidary {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
};

// The character at the start of `text`, which is UTF-8 (as every JSON string is) and not empty.
Character First(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes == 1 || text.size() < bytes) return {lead, 1};
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) code = code << 6 | (byte(i) & 0x3F);
  return {code, bytes};
}

void Append(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

// Python's str.isspace().
bool IsSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

// Unicode's simple case mappings, from the C library's own UTF-8 locale: the process's locale has no say. Where there
// is none, only ASCII has case.
locale_t Utf8Locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

template <typename Map>
std::string MapCase(std::string_view text, const Map& map) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = First(text);
    Append(out, c.code < 0x80 || Utf8Locale() != nullptr ? map(c.code) : c.code);
    text.remove_prefix(c.bytes);
  }
  return out;
}

// Python's repr() of a float: the shortest digits that read back equal, with an exponent from 1e16 on and below 1e-4.
std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto exponent_of = [&] {
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
    const std::string text(buffer, end);
    return std::pair(text, std::atoi(text.c_str() + text.find('e') + 1));
  };
  const auto [scientific, exponent] = exponent_of();
  if (value != 0 && (exponent < -4 || exponent >= 16)) return scientific;
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string text(buffer, end);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

// Python's repr() of a string.
std::string Quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (; !text.empty(); text.remove_prefix(First(text).bytes)) {
    const Character c = First(text);
    char escape[16] = {};
    if (c.code == '\\' || c.code == static_cast<uint32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out += c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
    } else if (c.code < 0x20 || (c.code >= 0x7F && c.code <= 0xA0) || c.code == 0xAD) {
      std::snprintf(escape, sizeof(escape), "\\x%02x", c.code);
      out += escape;
    } else if (IsSpace(c.code) && c.code != ' ') {
      std::snprintf(escape, sizeof(escape), "\\u%04x", c.code);
      out += escape;
    } else {
      out += text.substr(0, c.bytes);
    }
  }
  return out + quote;
}

std::string Repr(const OrderedJson& value) {
  if (value.is_string()) return Quoted(StringOf(&value));
  if (!value.is_structured()) return PythonStr(&value);
  std::string out;
  for (const auto& [key, item] : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += Quoted(key) + ": ";
    out += Repr(item);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

}  // namespace

TemplateValue Member(TemplateValue value, const char* key) {
  if (value == nullptr || !value->is_object()) return nullptr;
  const auto found = value->find(key);
  return found == value->end() ? nullptr : &*found;
}

bool IsString(TemplateValue value) { return value != nullptr && value->is_string(); }
bool IsMapping(TemplateValue value) { return value != nullptr && value->is_object(); }
bool IsNone(TemplateValue value) { return value != nullptr && value->is_null(); }
bool IsIterable(TemplateValue value) { return value == nullptr || value->is_structured() || value->is_string(); }

bool IsTruthy(TemplateValue value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number()) return value->get<double>() != 0;
  if (value->is_string()) return !StringOf(value).empty();
  return !value->empty();
}

const std::string& StringOf(TemplateValue value) { return value->get_ref<const std::string&>(); }

std::string PythonStr(TemplateValue value) {
  if (value == nullptr) return "";
  if (value->is_string()) return StringOf(value);
  if (value->is_null()) return "None";
  if (value->is_boolean()) return value->get<bool>() ? "True" : "False";
  if (value->is_number_float()) return FloatText(value->get<double>());
  if (value->is_number()) return value->dump();
  return Repr(*value);
}

std::vector<OrderedJson> Items(TemplateValue value) {
  std::vector<OrderedJson> items;
  if (value == nullptr) return items;
  if (value->is_array()) return value->get<std::vector<OrderedJson>>();
  if (value->is_object()) {
    for (const auto& [key, member] : value->items()) items.emplace_back(key);
    return items;
  }
  for (std::string_view text = StringOf(value); !text.empty();) {
    const size_t bytes = First(text).bytes;
    items.emplace_back(std::string(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  }
  return items;
}

std::vector<const OrderedJson::object_t::value_type*> SortedMembers(const OrderedJson& object) {
  const auto& members = object.get_ref<const OrderedJson::object_t&>();
  std::vector<std::pair<std::string, const OrderedJson::object_t::value_type*>> keyed;
  keyed.reserve(members.size());
  for (const auto& member : members) keyed.emplace_back(Lower(member.first), &member);
  // UTF-8 sorts as its code points do.
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const OrderedJson::object_t::value_type*> sorted;
  sorted.reserve(keyed.size());
  for (const auto& [lower, member] : keyed) sorted.push_back(member);
  return sorted;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(First(text).code)) text.remove_prefix(First(text).bytes);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsSpace(First(text.substr(last)).code)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string Upper(std::string_view text) {
  return MapCase(text, [](uint32_t code) -> uint32_t {
    if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
    return static_cast<uint32_t>(towupper_l(static_cast<wint_t>(code), Utf8Locale()));
  });
}

std::string Lower(std::string_view text) {
  return MapCase(text, [](uint32_t code) -> uint32_t {
    if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
    return static_cast<uint32_t>(towlower_l(static_cast<wint_t>(code), Utf8Locale()));
  });
}

}  // namespace lapidary
