#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace lapidary {
namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxHeaderBytes = size_t{256} << 10;
constexpr size_t kMaxIgnoredBytes = size_t{64} << 10;  // of the body of a redirect or an error
constexpr long kBufferBytes = 256L << 10;

using Clock = std::chrono::steady_clock;

// What the callbacks of one request share.
struct Transfer {
  const BodySink& sink;
  const StopFlag& stop;
  std::chrono::seconds stall_limit;
  HttpHead head{};
  size_t header_bytes = 0;
  size_t ignored_bytes = 0;
  bool stalled = false;
  curl_off_t moved_bytes = 0;
  Clock::time_point moved_at = Clock::now();
  std::exception_ptr failure{};
};

bool HasWantedBody(long status) { return status == 200 || status == 206; }

size_t OnHeader(char* data, size_t, size_t bytes, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  try {
    std::string_view line(data, bytes);
    transfer.header_bytes += bytes;
    if (transfer.header_bytes > kMaxHeaderBytes) return 0;
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {
      transfer.head.fields.clear();
      const size_t space = line.find(' ');
      if (space == std::string_view::npos) return 0;
      transfer.head.status = ParseSize(line.substr(space + 1, 3)).value_or(0);
      return bytes;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return bytes;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    line.remove_prefix(colon + 1);
    const size_t begin = line.find_first_not_of(" \t");
    transfer.head.fields[name] = begin == std::string_view::npos ? "" : std::string(line.substr(begin));
    return bytes;
  } catch (...) {
    transfer.failure = std::current_exception();
    return 0;
  }
}

size_t OnBody(char* data, size_t, size_t bytes, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  try {
    if (!HasWantedBody(transfer.head.status)) {
      transfer.ignored_bytes += bytes;
      return transfer.ignored_bytes > kMaxIgnoredBytes ? 0 : bytes;
    }
    transfer.sink(transfer.head, {data, bytes});
    return bytes;
  } catch (...) {
    transfer.failure = std::current_exception();
    return 0;
  }
}

int OnProgress(void* context, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(context);
  const auto now = Clock::now();
  if (received != transfer.moved_bytes) {
    transfer.moved_bytes = received;
    transfer.moved_at = now;
  }
  transfer.stalled = now - transfer.moved_at > transfer.stall_limit;
  return transfer.stalled || transfer.stop.IsSet() ? 1 : 0;
}

bool IsUnreachable(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT;
}

bool IsTransient(CURLcode code) {
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

void ThrowFailure(CURLcode code, const Transfer& transfer, const char* detail) {
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  transfer.stop.Check();
  const std::string& url = transfer.head.url;
  if (transfer.stalled) {
    throw TransientFailure(fmt::format("{}: no byte for {} s", url, transfer.stall_limit.count()));
  }
  const std::string text = fmt::format("{}: {}", url, Printable(*detail != '\0' ? detail : curl_easy_strerror(code)));
  if (IsUnreachable(code)) throw Unreachable(text);
  if (IsTransient(code)) throw TransientFailure(text);
  Throw(ErrorKind::kDevice, text);
}

CURL* NewEasy() {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* easy = global == CURLE_OK ? curl_easy_init() : nullptr;
  if (easy == nullptr) Throw(ErrorKind::kDevice, "cannot start libcurl");
  return easy;
}

void SetUp(CURL* easy, Transfer& transfer, char* detail) {
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_URL, transfer.head.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "lapidary");
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(transfer.stall_limit.count()));
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &OnProgress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, &transfer);
}

bool IsRedirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

std::optional<std::string> HttpHead::Field(const std::string& name) const {
  const auto found = fields.find(name);
  if (found == fields.end()) return std::nullopt;
  return found->second;
}

HttpClient::HttpClient(HttpOptions options, const StopFlag& stop)
    : options_(std::move(options)),
      endpoint_(OriginOf(options_.endpoint)),
      stop_(stop),
      easy_(NewEasy(), [](void* easy) { curl_easy_cleanup(easy); }) {}

// Links and redirects are foreign: they may lead to http only from http, and nowhere but to http and https.
Origin HttpClient::CheckedOrigin(const std::string& url) const {
  const auto origin = ParseOrigin(url);
  if (!origin) Throw(ErrorKind::kCorruptFile, fmt::format("{} leads to {}", options_.endpoint, Printable(url)));
  if (origin->scheme == "http" && endpoint_.scheme != "http") {
    Throw(ErrorKind::kCorruptFile, fmt::format("{} leads from https to http: {}", options_.endpoint, Printable(url)));
  }
  return *origin;
}

HttpHead HttpClient::Get(const std::string& url, std::optional<ByteRange> range, const BodySink& sink) {
  std::string next = url;
  bool from_endpoint = true;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    from_endpoint = CheckedOrigin(next) == endpoint_ && from_endpoint;
    HttpHead head = Perform(next, from_endpoint, range, sink);
    head.from_endpoint = from_endpoint;
    const auto location = head.Field("location");
    if (!IsRedirect(head.status) || !location) return head;
    next = ResolveUrl(next, *location);
  }
  Throw(ErrorKind::kDevice, fmt::format("{}: found more than {} redirects", url, kMaxRedirects));
}

HttpHead HttpClient::Perform(const std::string& url, bool with_token, std::optional<ByteRange> range,
                             const BodySink& sink) {
  stop_.Check();
  std::array<char, CURL_ERROR_SIZE> detail{};
  Transfer transfer{.sink = sink, .stop = stop_, .stall_limit = std::chrono::seconds(options_.stall_seconds)};
  transfer.head.url = url;
  CURL* easy = easy_.get();
  SetUp(easy, transfer, detail.data());
  if (range) {
    curl_easy_setopt(easy, CURLOPT_RANGE, fmt::format("{}-{}", range->begin, range->end - 1).c_str());
  }
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr, &curl_slist_free_all);
  if (with_token && !options_.token.empty()) {
    headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + options_.token).c_str()));
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  }
  const CURLcode code = curl_easy_perform(easy);
  // The body of a redirect or an error is of no interest: cut off or not, its head stands.
  const bool head_suffices = code == CURLE_WRITE_ERROR && transfer.ignored_bytes > kMaxIgnoredBytes;
  if (code != CURLE_OK && !head_suffices) ThrowFailure(code, transfer, detail.data());
  curl_off_t retry_after = 0;
  curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after);
  transfer.head.retry_after_seconds = static_cast<int>(std::clamp<curl_off_t>(retry_after, 0, 1 << 20));
  return std::move(transfer.head);
}

void CheckStatus(const HttpHead& head, const std::string& what, bool with_token) {
  const long status = head.status;
  if (HasWantedBody(status)) return;
  std::string answer = fmt::format("{}: the hub answered {}", what, status);
  if (const auto message = head.Field("x-error-message")) answer += " (" + Printable(*message) + ")";
  const bool expired = status == 403 && !head.from_endpoint;
  if (expired || status == 408 || status == 429 || status >= 500) {
    throw TransientFailure(answer, head.retry_after_seconds);
  }
  if (status == 401 || status == 403) {
    Throw(
        ErrorKind::kInvalidArgument,
        answer + (with_token ? "; it is gated, private or does not exist for this token: accept its terms on the hub, "
                               "or use a token that may read it"
                             : "; it is gated, private or does not exist: accept its terms on the hub and give a token "
                               "(HF_TOKEN)"));
  }
  Throw(status == 404 ? ErrorKind::kNotFound : ErrorKind::kDevice, answer);
}

}  // namespace lapidary
