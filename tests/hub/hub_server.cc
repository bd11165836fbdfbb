#include "hub_server.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace lapidary {

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lapidary-hub-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string Noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

bool HubServer::IsAvailable() {
  static const bool available = std::system("command -v python3 >/dev/null 2>&1") == 0;
  return available;
}

HubServer::HubServer(const std::string& text) {
  Json config = Json::parse(text);
  config["root"] = root_.path();
  config["log"] = control_.File("log");
  WriteText(control_.File("log"), "");
  WriteText(control_.File("config.json"), config.dump(-1, ' ', true));
  std::array<int, 2> input{}, output{};
  if (::pipe2(input.data(), O_CLOEXEC) != 0 || ::pipe2(output.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe failed");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], 0);
  posix_spawn_file_actions_adddup2(&actions, output[1], 1);
  std::string program = "python3", mode = "-IS", script = LAPIDARY_SOURCE_DIR "/tests/hub/hub_server.py";
  std::string argument = control_.File("config.json");
  std::array<char*, 5> arguments{program.data(), mode.data(), script.data(), argument.data(), nullptr};
  const int code = ::posix_spawnp(&pid_, "python3", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(input[0]);
  ::close(output[1]);
  input_ = input[1];
  std::FILE* ports = ::fdopen(output[0], "r");
  const bool started = code == 0 && std::fscanf(ports, "%d %d", &port_, &cdn_port_) == 2;
  std::fclose(ports);
  if (!started) throw std::runtime_error("hub_server.py did not start");
}

HubServer::~HubServer() {
  ::close(input_);
  int status = 0;
  if (pid_ > 0) ::waitpid(pid_, &status, 0);
}

std::vector<Json> HubServer::Log() const {
  std::vector<Json> entries;
  std::ifstream file(control_.File("log"));
  for (std::string line; std::getline(file, line);) entries.push_back(Json::parse(line));
  return entries;
}

std::vector<Json> HubServer::LogOf(const std::string& text) const {
  std::vector<Json> entries;
  for (const Json& entry : Log()) {
    if (entry["path"].get<std::string>().find(text) != std::string::npos) entries.push_back(entry);
  }
  return entries;
}

}  // namespace lapidary
