#include "hub/url.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/error.h"
#include "base/json.h"

namespace lapidary {
namespace {

using UrlHandle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

UrlHandle NewUrl() { return {curl_url(), &curl_url_cleanup}; }

std::string Part(const UrlHandle& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  const std::unique_ptr<char, decltype(&curl_free)> owner(text, &curl_free);
  return text;
}

bool IsPlain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_';
}

bool IsRepositoryPart(std::string_view part) {
  constexpr size_t kMaxBytes = 96;  // the hub's limit
  return !part.empty() && part.size() <= kMaxBytes && std::ranges::all_of(part, IsPlain) && part.front() != '.' &&
         part.front() != '-' && part.find("..") == std::string_view::npos;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

std::optional<Origin> ParseOrigin(const std::string& url) {
  const UrlHandle handle = NewUrl();
  const CURLUcode code = curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME);
  Origin origin{Part(handle, CURLUPART_SCHEME), Part(handle, CURLUPART_HOST),
                Part(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  std::ranges::transform(origin.host, origin.host.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (code != CURLUE_OK || origin.host.empty() || (origin.scheme != "http" && origin.scheme != "https")) return {};
  return origin;
}

Origin OriginOf(const std::string& url) {
  if (auto origin = ParseOrigin(url)) return *origin;
  Throw(ErrorKind::kInvalidArgument,
        fmt::format("found URL {}, wanted http:// or https:// and a host", Printable(url)));
}

std::string ResolveUrl(const std::string& base, const std::string& reference) {
  const UrlHandle handle = NewUrl();
  const unsigned flags = CURLU_NON_SUPPORT_SCHEME | CURLU_URLENCODE;
  if (curl_url_set(handle.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK ||
      curl_url_set(handle.get(), CURLUPART_URL, reference.c_str(), flags) != CURLUE_OK) {
    Throw(ErrorKind::kCorruptFile, fmt::format("{} leads to {}, which is no URL", base, Printable(reference)));
  }
  curl_url_set(handle.get(), CURLUPART_FRAGMENT, nullptr, 0);
  return Part(handle, CURLUPART_URL);
}

std::string EncodeUrlPart(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (IsPlain(c) || c == '~') {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string CleanEndpoint(const std::string& endpoint) {
  OriginOf(endpoint);
  const UrlHandle handle = NewUrl();
  if (curl_url_set(handle.get(), CURLUPART_URL, endpoint.c_str(), 0) != CURLUE_OK ||
      endpoint.find_first_of("?#@ \t") != std::string::npos) {
    Throw(ErrorKind::kInvalidArgument,
          fmt::format("found endpoint {}, wanted http(s)://host[:port][/path]", Printable(endpoint)));
  }
  return endpoint.substr(0, endpoint.find_last_not_of('/') + 1);
}

void CheckRepository(const std::string& repository) {
  const std::string_view text = repository;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || !IsRepositoryPart(text.substr(0, slash)) ||
      !IsRepositoryPart(text.substr(slash + 1))) {
    Throw(ErrorKind::kInvalidArgument,
          fmt::format("found repository \"{}\", wanted owner/name", Printable(repository)));
  }
}

void CheckRevision(const std::string& revision) {
  constexpr size_t kMaxBytes = 250;
  const bool printable = std::ranges::all_of(revision, [](char c) { return c > ' ' && c < 0x7f; });
  if (revision.empty() || revision.size() > kMaxBytes || !printable || revision.find("..") != std::string::npos) {
    Throw(ErrorKind::kInvalidArgument,
          fmt::format("found revision \"{}\", wanted a branch, tag or commit", Printable(revision)));
  }
}

std::optional<std::string> NextLink(std::string_view link) {
  while (true) {
    const size_t open = link.find('<');
    const size_t close = link.find('>', open == std::string_view::npos ? link.size() : open);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view target = link.substr(open + 1, close - open - 1);
    link.remove_prefix(close + 1);
    const std::string_view parameters = link.substr(0, link.find('<'));
    if (parameters.find("rel=\"next\"") != std::string_view::npos ||
        parameters.find("rel=next") != std::string_view::npos) {
      return std::string(target);
    }
  }
}

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) {
    return std::nullopt;
  }
  const auto first = ParseSize(Trim(text.substr(kUnit.size(), dash - kUnit.size())));
  const auto last = ParseSize(Trim(text.substr(dash + 1, slash - dash - 1)));
  const auto size = ParseSize(Trim(text.substr(slash + 1)));
  if (!first || !last || !size || *first > *last || *last >= *size) return std::nullopt;
  return ContentRange{{*first, *last + 1}, *size};
}

std::optional<int64_t> ParseSize(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || text.starts_with('-')) return std::nullopt;
  return value;
}

bool IsLowerHex(std::string_view text, size_t length) {
  return text.size() == length &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace lapidary
