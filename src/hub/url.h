#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hub/range_set.h"

namespace lapidary {

// Where a URL leads: two URLs of equal origin are served by the same host.
struct Origin {
  std::string scheme;  // "http" or "https"
  std::string host;
  std::string port;

  bool operator==(const Origin&) const = default;
};

// Empty for anything but an absolute http or https URL.
std::optional<Origin> ParseOrigin(const std::string& url);
// Throws Error kInvalidArgument instead.
Origin OriginOf(const std::string& url);

// `reference`, absolute or relative, as seen from the page at `base`. Throws Error kCorruptFile.
std::string ResolveUrl(const std::string& base, const std::string& reference);

// Percent-encodes all but unreserved characters, also '/'.
std::string EncodeUrlPart(std::string_view text);

// An endpoint without trailing slashes. Throws Error kInvalidArgument for what is not http(s)://host[:port][/path].
std::string CleanEndpoint(const std::string& endpoint);

// Throw Error kInvalidArgument for what is not "owner/name" in the hub's alphabet, or a branch, tag or commit.
void CheckRepository(const std::string& repository);
void CheckRevision(const std::string& revision);

// The target of rel="next" in a Link header (RFC 8288).
std::optional<std::string> NextLink(std::string_view link);

struct ContentRange {
  ByteRange range;
  int64_t size = 0;  // of the whole file
};

// "bytes 0-99/1000"; empty for anything else.
std::optional<ContentRange> ParseContentRange(std::string_view text);

// A whole number in [0, 2^63), digits only.
std::optional<int64_t> ParseSize(std::string_view text);

bool IsLowerHex(std::string_view text, size_t length);

}  // namespace lapidary
