#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace lapidary {

// A folder below the system's temporary one that is removed at the end.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void WriteText(const std::string& path, const std::string& text);

// `bytes` of noise that depends on the seed only.
std::string Noise(size_t bytes, unsigned seed);

// hub_server.py as a child process; ends with this object, or with this process.
class HubServer {
 public:
  // `config` is the JSON that hub_server.py takes, without root and log. Serves the files written into root().
  explicit HubServer(const std::string& config = "{}");
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;
  ~HubServer();

  static bool IsAvailable();  // whether there is a python3

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string cdn() const { return "http://127.0.0.1:" + std::to_string(cdn_port_); }
  const std::string& root() const { return root_.path(); }

  // What was asked so far, oldest first: {"cdn", "path", "range", "authorization"}.
  std::vector<Json> Log() const;
  // Those of Log() whose path contains this text.
  std::vector<Json> LogOf(const std::string& text) const;

 private:
  TempFolder root_;
  TempFolder control_;
  int pid_ = -1;
  int input_ = -1;  // the child ends when this is closed
  int port_ = 0;
  int cdn_port_ = 0;
};

}  // namespace lapidary
