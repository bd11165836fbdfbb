#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lapidary {

struct ProgramResult {
  int status = 0;  // of exit, or minus the signal that ended it
  std::string out, err;
};

// Runs the built program with `arguments` and `input` on its standard input. Environment entries look like
// "NAME=value".
ProgramResult RunProgram(const std::vector<std::string>& arguments, const std::string& input = "",
                         const std::vector<std::string>& environment = {});

// Expects an error: the status, nothing on stdout, and one line on stderr that begins "lapidary: " and contains `part`.
void ExpectError(const ProgramResult& result, int status, const std::string& part);

// A folder for one test, gone afterwards.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void WriteText(const std::string& path, const std::string& text);
std::string ReadText(const std::string& path);

// tests/data/<name>
std::string DataFolder(const std::string& name);

}  // namespace lapidary
