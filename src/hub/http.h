#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "hub/range_set.h"
#include "hub/url.h"
#include "hub/workers.h"

namespace lapidary {

// Status line and header of an answer.
struct HttpHead {
  long status = 0;
  std::string url;                            // that gave this answer, after redirects
  bool from_endpoint = true;                  // no redirect led to another host
  int retry_after_seconds = 0;                // 0: not stated
  std::map<std::string, std::string> fields;  // names in lower case

  std::optional<std::string> Field(const std::string& name) const;
};

// A failure that another attempt may cure: a broken connection, a stall, a server that is busy.
class TransientFailure : public std::runtime_error {
 public:
  explicit TransientFailure(const std::string& what, int retry_after_seconds = 0)
      : std::runtime_error(what), retry_after_seconds_(retry_after_seconds) {}
  int retry_after_seconds() const { return retry_after_seconds_; }

 private:
  int retry_after_seconds_;
};

// No connection came about: the host's name was not resolved, or nobody listens there.
class Unreachable : public TransientFailure {
 public:
  using TransientFailure::TransientFailure;
};

// Gets a body piece by piece, the same head each time. What it throws ends the transfer and leaves Get.
using BodySink = std::function<void(const HttpHead& head, std::string_view piece)>;

struct HttpOptions {
  std::string endpoint;  // the only host that is sent the token
  std::string token;
  int stall_seconds = 30;
};

// One connection at a time, kept open between requests. For one thread.
class HttpClient {
 public:
  // `stop` must outlive the client.
  HttpClient(HttpOptions options, const StopFlag& stop);

  // Follows up to 10 redirects, never from https to http. The token goes with requests to the endpoint's origin until a
  // redirect has led elsewhere. `sink` sees the body of a 200 or 206 only; other statuses are for the caller to judge.
  // Throws TransientFailure, of which Unreachable; Error kDevice (no retry helps), kCancelled (stop was set),
  // kCorruptFile (bad redirect).
  HttpHead Get(const std::string& url, std::optional<ByteRange> range, const BodySink& sink);

 private:
  HttpHead Perform(const std::string& url, bool with_token, std::optional<ByteRange> range, const BodySink& sink);
  Origin CheckedOrigin(const std::string& url) const;

  HttpOptions options_;
  Origin endpoint_;
  const StopFlag& stop_;
  std::unique_ptr<void, void (*)(void*)> easy_;
};

// Throws TransientFailure for 408, 429, 5xx and a 403 of another host (an expired signature); Error kInvalidArgument
// for 401 and 403, kNotFound for 404, kDevice for anything else but 200 and 206. `what` names the thing asked for.
void CheckStatus(const HttpHead& head, const std::string& what, bool with_token);

}  // namespace lapidary
