#include "run_program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace lapidary {
namespace {

// In the child: never returns.
[[noreturn]] void Execute(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                          const TestFolder& folder) {
  const auto redirect = [&](const char* name, int flags, int target) {
    const int file = open((folder / name).c_str(), flags, 0600);
    if (file < 0 || dup2(file, target) < 0) _exit(126);
  };
  redirect("in", O_RDONLY, STDIN_FILENO);
  redirect("out", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  redirect("err", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>(LAPIDARY_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
  execv(LAPIDARY_PROGRAM, argv.data());
  _exit(127);
}

}  // namespace

ProgramResult RunProgram(const std::vector<std::string>& arguments, const std::string& input,
                         const std::vector<std::string>& environment) {
  const TestFolder folder;
  WriteText(folder / "in", input);
  const pid_t child = fork();
  if (child == 0) Execute(arguments, environment, folder);
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), ReadText(folder / "out"),
          ReadText(folder / "err")};
}

void ExpectError(const ProgramResult& result, int status, const std::string& part) {
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, ::testing::StartsWith("lapidary: "));
  EXPECT_THAT(result.err, ::testing::HasSubstr(part));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TestFolder::TestFolder() {
  std::string name = std::filesystem::temp_directory_path() / "lapidary_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TestFolder::~TestFolder() { std::filesystem::remove_all(path_); }

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string DataFolder(const std::string& name) { return std::string(LAPIDARY_SOURCE_DIR) + "/tests/data/" + name; }

}  // namespace lapidary
