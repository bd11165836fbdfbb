#include "cli/parse_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/usage_error.h"

namespace lapidary {
namespace {

constexpr size_t kShown = 40;  // bytes of a wrong value that an error repeats

[[noreturn]] void Refuse(const std::string& what, std::string_view found, const std::string& wanted) {
  std::string shown;
  for (const char c : found.substr(0, kShown)) shown += c >= ' ' && c < 127 ? c : '?';
  if (found.size() > kShown) shown += "...";
  Throw(ErrorKind::kInvalidArgument, what + ": found '" + shown + "', wanted " + wanted);
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool ParseNumber(std::string_view text, int64_t least, int64_t& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end && value >= least && value <= std::numeric_limits<int32_t>::max();
}

std::vector<int64_t> ParseList(std::string_view text, int64_t least, const std::string& what, const char* wanted) {
  std::vector<int64_t> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = Trim(text.substr(begin, end - begin));
    int64_t value = 0;
    if (!ParseNumber(item, least, value)) Refuse(what, item, wanted);
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

// What is wrong with a value of the command line itself is wrong usage.
template <class F>
auto OfCommandLine(const F& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

bool IsNamePart(std::string_view part) {
  return !part.empty() && part != "." && part != ".." &&
         part.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyz"
             "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == std::string_view::npos;
}

}  // namespace

std::vector<int32_t> ParseIds(std::string_view text, const std::string& what) {
  std::string_view list = Trim(text);
  if (!list.empty() && list.front() == '[') {
    if (list.size() < 2 || list.back() != ']') Refuse(what, list, "a list that ends with ']'");
    list = Trim(list.substr(1, list.size() - 2));
  }
  std::vector<int32_t> ids;
  if (list.empty()) return ids;
  for (const int64_t value : ParseList(list, 0, what, "token ids such as 2,651,9")) {
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

std::vector<int32_t> ReadIds(const std::string& text, const std::string& what) {
  if (!text.starts_with('@')) return OfCommandLine([&] { return ParseIds(text, what); });
  const std::string path = text.substr(1);
  return ParseIds(ReadFile(path), path);
}

std::vector<int64_t> ParseCounts(std::string_view text, const std::string& what) {
  return OfCommandLine([&] { return ParseList(text, 1, what, "numbers of at least 1, such as 512,2048"); });
}

namespace {

std::pair<int32_t, double> LogitBias(std::string_view text) {
  const std::string what = "--logit-bias", wanted = "ID=VALUE such as 651=-2.5";
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) Refuse(what, text, wanted);
  int64_t id = 0;
  if (!ParseNumber(Trim(text.substr(0, equals)), 0, id)) Refuse(what, text, wanted);
  std::string_view number = Trim(text.substr(equals + 1));
  if (number.size() > 1 && number[0] == '+' && number[1] != '-') number.remove_prefix(1);
  double value = 0;
  const char* end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value)) Refuse(what, text, wanted);
  return {static_cast<int32_t>(id), value};
}

}  // namespace

std::pair<int32_t, double> ParseLogitBias(std::string_view text) {
  return OfCommandLine([&] { return LogitBias(text); });
}

std::string RepositoryName(std::string_view repository) {
  const size_t slash = repository.find('/');
  if (slash == std::string_view::npos || !IsNamePart(repository.substr(0, slash)) ||
      !IsNamePart(repository.substr(slash + 1))) {
    OfCommandLine([&] { Refuse("repository", repository, "owner/name such as google/gemma-4-E2B"); });
  }
  return std::string(repository.substr(slash + 1));
}

}  // namespace lapidary
