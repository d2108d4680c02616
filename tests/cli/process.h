// The `chairlift` program as a user runs it: arguments in; output, exit code and signals out.
#ifndef CHAIRLIFT_TESTS_CLI_PROCESS_H_
#define CHAIRLIFT_TESTS_CLI_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace chairlift {

// Standard output and standard error are read together, in `output`.
class Process {
 public:
  // kClosed: the program's standard files are closed.
  enum class Output { kPipe, kTerminal, kClosed };

  // CHAIRLIFT_PROGRAM with these arguments; `environment` is NAME=value, beside the test's own.
  explicit Process(std::vector<std::string> arguments, std::vector<std::string> environment = {},
                   Output output = Output::kPipe) {
    arguments.insert(arguments.begin(), CHAIRLIFT_PROGRAM);
    for (char** variable = environ; *variable != nullptr; ++variable) {
      environment.emplace_back(*variable);
    }
    int ends[2];
    if (!Open(output, ends)) ADD_FAILURE() << "no pipe";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    for (int file = 0; output == Output::kClosed && file < 3; ++file) {
      posix_spawn_file_actions_addclose(&actions, file);
    }
    const int error = ::posix_spawn(&pid_, CHAIRLIFT_PROGRAM, &actions, nullptr,
                                    Pointers(arguments).data(), Pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    read_end_ = ends[0];
    if (error != 0) ADD_FAILURE() << "cannot start " CHAIRLIFT_PROGRAM;
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    StopReading();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads on until `text` has been written; false where the program ends or is silent for long.
  bool AwaitOutput(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  void Signal(int number) { ::kill(pid_, number); }
  void SignalThread(int thread, int number) { ::syscall(SYS_tgkill, pid_, thread, number); }
  // Its folder in /proc.
  std::string Folder() const { return "/proc/" + std::to_string(pid_); }
  // What the program writes from now on finds no reader.
  void StopReading() {
    if (read_end_ >= 0) ::close(read_end_);
    read_end_ = -1;
  }

  // Reads the rest; the exit code, or minus the signal that ended it.
  int Wait() {
    while (ReadMore()) {
    }
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& output() const { return output_; }

 private:
  static constexpr int kSilenceMs = 60'000;  // a hang fails the test instead of hanging it

  static std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  // The end to read, then the one to write.
  static bool Open(Output output, int ends[2]) {
    if (output != Output::kTerminal) return ::pipe2(ends, O_CLOEXEC) == 0;
    ends[0] = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0 || ::grantpt(ends[0]) != 0 || ::unlockpt(ends[0]) != 0) return false;
    ends[1] = ::open(::ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
    return ends[1] >= 0;
  }

  bool ReadMore() {
    if (read_end_ < 0) return false;
    pollfd ready{read_end_, POLLIN, 0};
    if (::poll(&ready, 1, kSilenceMs) != 1) {
      ADD_FAILURE() << "silent for " << kSilenceMs << " ms after:\n" << output_;
      ::kill(pid_, SIGKILL);
      return false;
    }
    char chunk[4096];
    const ssize_t got = ::read(read_end_, chunk, sizeof(chunk));
    if (got <= 0) return false;
    output_.append(chunk, static_cast<size_t>(got));
    return true;
  }

  pid_t pid_ = -1;
  int read_end_ = -1;
  std::string output_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_CLI_PROCESS_H_
