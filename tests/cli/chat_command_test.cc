// lapidary chat with the demo model, over pipes and on a terminal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "run_program.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramResult Chat(const std::string& input, std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), "chat");
  return RunProgram(arguments, input);
}

TEST(ChatCommand, AnswersLineByLineInAPipe) {
  const ProgramResult result = Chat("What is the capital of France?\n\nWhat is 2 + 3?\r\n/exit\nHi\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("The capital of France is Paris.\n"));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2);
  EXPECT_EQ(result.err, "");
}

TEST(ChatCommand, ResetMakesItAFreshConversation) {
  const ProgramResult fresh = Chat("What is 2 + 3?\n");
  EXPECT_EQ(fresh.out, "2 + 3 = 5.\n");
  const ProgramResult reset = Chat("What is the capital of France?\n/reset\nWhat is 2 + 3?");
  EXPECT_EQ(reset.out, "The capital of France is Paris.\n2 + 3 = 5.\n");
}

TEST(ChatCommand, ThoughtsStayOutOfAPipe) {
  const ProgramResult result = Chat("What is 4 + 5?\n", {"--think"});
  EXPECT_EQ(result.out, "4 + 5 = 9.\n") << result.err;
}

TEST(ChatCommand, CommandsAndWrongUse) {
  EXPECT_THAT(Chat("/help\n").out, HasSubstr("/reset"));
  EXPECT_EQ(Chat("").out, "");
  EXPECT_EQ(Chat("/quit\n").status, 0);
  ExpectError(Chat("/frobnicate\n"), 1, "/frobnicate");
  ExpectError(Chat("Hi\n", {"--ctx", "4"}), 1, "context of 4");
  ExpectError(Chat("Hi\n", {"-n", "-2"}), 2, "-2");
  ExpectError(Chat("Hi\n", {"-m", DataFolder("e2b-mini")}), 1, "tokenizer.json");
}

TEST(ChatCommand, ALimitIsToldOf) {
  const ProgramResult result = Chat("What is the capital of France?\n", {"-n", "2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("cut"));
}

// The program on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments) {
    child_ = forkpty(&master_, nullptr, nullptr, nullptr);
    if (child_ == 0) {
      std::vector<char*> argv = {const_cast<char*>(LAPIDARY_PROGRAM), const_cast<char*>("chat")};
      for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      unsetenv("NO_COLOR");
      execv(LAPIDARY_PROGRAM, argv.data());
      _exit(127);
    }
  }
  ~Terminal() {
    close(master_);
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }

  void Type(const std::string& text) {
    EXPECT_EQ(write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // What is shown up to `text`; everything when it never comes.
  std::string ReadUntil(const std::string& text) {
    size_t found = std::string::npos;
    while ((found = shown_.find(text)) == std::string::npos) {
      pollfd input = {master_, POLLIN, 0};
      char bytes[1024];
      if (poll(&input, 1, 60'000) <= 0) break;
      const ssize_t count = read(master_, bytes, sizeof(bytes));
      if (count <= 0) break;
      shown_.append(bytes, static_cast<size_t>(count));
    }
    EXPECT_NE(found, std::string::npos) << "not shown: " << text << "; shown: " << shown_;
    if (found == std::string::npos) return std::exchange(shown_, {});
    std::string part = shown_.substr(0, found + text.size());
    shown_.erase(0, part.size());
    return part;
  }

  int WaitForExit() {
    int status = 0;
    waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  int master_ = -1;
  pid_t child_ = -1;
  std::string shown_;
};

TEST(ChatCommand, OnATerminalThoughtsAreDim) {
  Terminal terminal({"--think"});
  terminal.ReadUntil("> ");
  terminal.Type("What is 4 + 5?\n");
  EXPECT_THAT(terminal.ReadUntil("4 + 5 = 9."), HasSubstr("\033[2mThe user wants a sum. 4 plus 5 is 9.\033[0m"));
  terminal.ReadUntil("> ");
  terminal.Type("/wrong\n");
  terminal.ReadUntil("/wrong, wanted");
  terminal.ReadUntil("> ");
  terminal.Type("\x04");  // Ctrl-D
  EXPECT_EQ(terminal.WaitForExit(), 0);
}

TEST(ChatCommand, CtrlCStopsTheAnswerAndNotTheProgram) {
  // Hot, it does not end by itself before the context is full.
  Terminal terminal({"--temp", "50", "--top-k", "0", "--top-p", "1", "--seed", "1"});
  terminal.ReadUntil("> ");
  terminal.Type("Once upon a time\n");
  terminal.ReadUntil("time\r\n");
  terminal.ReadUntil("a");
  terminal.Type("\x03");
  terminal.ReadUntil("\n> ");
  terminal.Type("\x03");
  terminal.ReadUntil("(/exit leaves)");
  terminal.ReadUntil("> ");
  terminal.Type("/help\n");
  terminal.ReadUntil("forget the conversation");
  terminal.Type("/exit\n");
  EXPECT_EQ(terminal.WaitForExit(), 0);
}

}  // namespace
}  // namespace lapidary
