#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "hub/http.h"
#include "hub/retry.h"

namespace lapidary {

// A file of a repository, as its listing states it.
struct RemoteFile {
  std::string name;  // no folder
  int64_t size = 0;
  std::string sha256;    // of the content; empty: not stored in LFS
  std::string git_sha1;  // of "blob <size>\0" and the content; empty: not stated

  // The hub's ETag of the file; empty when neither hash is stated.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
};

struct HubAddress {
  std::string endpoint;    // as CleanEndpoint gives it
  std::string repository;  // "owner/name"
  std::string revision;    // branch, tag or commit

  std::string Describe() const { return repository + " at " + revision; }
};

// Whether a model folder needs the file of this name.
bool IsWanted(std::string_view name);

// Adds the wanted files of one page of a tree listing, those at the top level. Throws Error kCorruptFile: another form
// than the hub's, a path that is not relative and plain, a negative size, a name twice.
void AddWantedFiles(const Json& page, const std::string& what, std::vector<RemoteFile>& files);

// Asks the hub's API; for one thread. Retries what is transient, but not when the first request of all finds no hub:
// that is Error kDevice at once.
class Listing {
 public:
  Listing(HttpClient& client, RetryOptions retry, const StopFlag& stop, bool with_token)
      : client_(client), retry_(retry), stop_(stop), with_token_(with_token) {}

  // The commit that the address's revision names now. Throws like CheckStatus, kCorruptFile for a strange answer.
  std::string ResolveCommit(const HubAddress& address);

  // Also throws Error kNotFound when there is no config.json or no *.safetensors.
  std::vector<RemoteFile> WantedFiles(const HubAddress& address);

 private:
  struct Page {
    std::string text;
    std::string next;  // URL; empty: the last page
  };
  HttpHead Get(const std::string& url, const std::string& what, const BodySink& sink);
  Page GetPage(const std::string& url, const std::string& what);

  HttpClient& client_;
  RetryOptions retry_;
  const StopFlag& stop_;
  bool with_token_;
  bool has_asked_ = false;
};

// Where the hub serves a file's content.
std::string FileUrl(const HubAddress& address, const std::string& name);

}  // namespace lapidary
