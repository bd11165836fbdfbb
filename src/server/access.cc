#include "server/access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>

#include "server/api_error.h"

namespace lapidary {
namespace {

constexpr size_t kDigestBytes = 32;

std::string Digest(std::string_view text) {
  std::string digest(kDigestBytes, '\0');
  unsigned int length = 0;
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &length, EVP_sha256(), nullptr);
  return digest;
}

std::string_view KeyOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  if (!boost::beast::iequals({scheme.data(), scheme.size()}, {kScheme.data(), kScheme.size()})) return {};
  return authorization.substr(kScheme.size());
}

// "http://localhost:8080" -> "localhost:8080"
std::string_view HostOf(std::string_view origin) {
  const size_t end = origin.find("://");
  return end == std::string_view::npos ? std::string_view() : origin.substr(end + 3);
}

std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool IsLoopbackName(std::string_view host) {
  const std::string_view name = WithoutPort(host);
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]";
}

bool IsLoopbackAddress(const std::string& host) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

}  // namespace

Access::Access(const ServerOptions& options)
    : origins_(options.allowed_origins), loopback_(IsLoopbackAddress(options.host)) {
  for (const std::string& key : options.api_keys) key_digests_.push_back(Digest(key));
}

void Access::CheckKey(const HttpRequest& request) const {
  if (key_digests_.empty()) return;
  const std::string given = Digest(KeyOf(request.authorization));
  int found = 0;
  for (const std::string& key : key_digests_) {
    found |= static_cast<int>(CRYPTO_memcmp(key.data(), given.data(), kDigestBytes) == 0);
  }
  if (found == 0) throw ApiError(401, "wrong or missing API key", "", "invalid_api_key");
}

bool Access::IsAllowed(std::string_view origin) const {
  return std::any_of(origins_.begin(), origins_.end(),
                     [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

bool Access::IsOwn(const HttpRequest& request) const {
  return HostOf(request.origin) == request.host && (!loopback_ || IsLoopbackName(request.host));
}

void Access::CheckOrigin(const HttpRequest& request) const {
  if (request.origin.empty() || IsAllowed(request.origin) || IsOwn(request)) return;
  throw ApiError(403, "a web page of this origin may not ask: see --cors-origin", "", "origin_not_allowed");
}

void Access::AddCorsHeaders(HttpExchange& exchange) const {
  const HttpRequest& request = exchange.request();
  if (request.origin.empty() || !IsAllowed(request.origin)) return;
  exchange.AddHeader("Access-Control-Allow-Origin", request.origin);
  exchange.AddHeader("Vary", "Origin");
  if (request.preflight_method.empty()) return;
  exchange.AddHeader("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  exchange.AddHeader("Access-Control-Allow-Headers", "Authorization, Content-Type");
  exchange.AddHeader("Access-Control-Max-Age", "600");
}

}  // namespace lapidary
