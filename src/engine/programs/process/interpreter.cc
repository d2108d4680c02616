#include "engine/programs/process/interpreter.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "engine/programs/process/worker_script.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

// Number of folders above the program whose virtual environments belong to it: build/release/bin
// has three.
constexpr int kFoldersAboveProgram = 3;
constexpr std::chrono::seconds kTimeToAnswer(20);
constexpr const char* kInPath = "PATH";
constexpr size_t kMostAnswered = size_t{64} << 10;

std::string InEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

bool Inside(const fs::path& file, const std::vector<fs::path>& folders) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(file, error);
  return std::any_of(folders.begin(), folders.end(), [&](const fs::path& folder) {
    const fs::path root = fs::weakly_canonical(folder, error);
    return std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first == root.end();
  });
}

// Whether no other user could have placed code there.
bool IsOurs(const fs::path& path, const fs::path& program) {
  struct stat of_program = {}, about = {};
  if (::stat(path.c_str(), &about) != 0) return false;
  const bool known = ::stat(program.c_str(), &of_program) == 0;
  return (about.st_mode & S_IWOTH) == 0 && (about.st_uid == ::geteuid() || about.st_uid == 0 ||
                                            (known && about.st_uid == of_program.st_uid));
}

// The interpreter of a virtual environment that may be used; empty: there is none.
std::string PythonOfEnvironment(const fs::path& folder, const fs::path& program) {
  const fs::path python = folder / "bin/python3";
  std::error_code error;
  if (!fs::is_regular_file(folder / "pyvenv.cfg", error) || ::access(python.c_str(), X_OK) != 0) {
    return {};
  }
  for (const fs::path& part : {folder, folder / "bin", folder / "pyvenv.cfg"}) {
    if (!IsOurs(part, program)) return {};
  }
  return python.string();
}

// Ends the process group when destroyed.
struct Child {
  ~Child() {
    if (output >= 0) ::close(output);
    if (pid <= 0) return;
    ::kill(-pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_t pid = -1;
  int output = -1;
};

// The output of a program within the time limit; empty if it does not end or cannot be started.
std::string OutputOf(const std::vector<std::string>& arguments) {
  std::array<int, 2> pipe{-1, -1};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return {};
  Child child;
  child.output = pipe[0];
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.data()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error =
      ::posix_spawnp(&child.pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  if (error != 0) {
    child.pid = -1;
    return {};
  }
  std::string text;
  const auto end = std::chrono::steady_clock::now() + kTimeToAnswer;
  while (text.size() < kMostAnswered) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd ready{child.output, POLLIN, 0};
    const int polled = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return {};
    std::array<char, 4096> part;
    const ssize_t got = ::read(child.output, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part.data(), static_cast<size_t>(got));
  }
  return text;
}

// The modules that an interpreter lacks; nothing if it cannot be run.
std::optional<std::vector<std::string>> MissingIn(const std::string& python, const fs::path& script,
                                                  const fs::path& file,
                                                  const std::vector<std::string>& packages) {
  std::vector<std::string> arguments = {python, script.string(), file.string()};
  arguments.insert(arguments.end(), packages.begin(), packages.end());
  // An interpreter that has them all is not checked again: many models may need the same modules.
  static std::mutex mutex;
  static std::set<std::vector<std::string>> complete;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (complete.contains(arguments)) return std::vector<std::string>();
  }
  std::istringstream lines(OutputOf(arguments));
  std::string line;
  if (!std::getline(lines, line) || line != "missing:") return std::nullopt;
  std::vector<std::string> missing;
  while (std::getline(lines, line)) {
    if (line == "end") {
      const std::lock_guard<std::mutex> lock(mutex);
      if (missing.empty()) complete.insert(arguments);
      return missing;
    }
    missing.push_back(line);
  }
  return std::nullopt;
}

// Logs each line only once.
void LogOnce(spdlog::level::level_enum level, const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> logged;
  const std::lock_guard<std::mutex> lock(mutex);
  if (logged.insert(line).second) spdlog::log(level, "{}", line);
}

}  // namespace

std::vector<InterpreterPlace> InterpreterPlaces(const FunctionConfig& function,
                                                const fs::path& file, bool runs_their_code) {
  std::vector<InterpreterPlace> places;
  const auto add = [&](std::string python, const char* where) {
    const bool known = std::any_of(places.begin(), places.end(), [&](const InterpreterPlace& one) {
      return one.python == python;
    });
    if (!python.empty() && !known) places.push_back({std::move(python), where});
  };
  std::error_code error;
  if (const std::string active = InEnvironment("VIRTUAL_ENV"); !active.empty()) {
    const fs::path python = fs::path(active) / "bin/python3";
    if (::access(python.c_str(), X_OK) == 0) add(python.string(), "VIRTUAL_ENV");
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const auto add_in = [&](const fs::path& folder, const char* where) {
    for (const char* name : {".venv", "venv"}) {
      if (!runs_their_code && Inside(folder / name, function.data_folders)) continue;
      add(PythonOfEnvironment(folder / name, program), where);
    }
  };
  fs::path above = program.parent_path();
  add(PythonOfEnvironment(above.parent_path(), program), "where the program is installed");
  for (int i = 0; i <= kFoldersAboveProgram && above.has_relative_path(); ++i) {
    add_in(above, "beside the program");
    above = above.parent_path();
  }
  for (const fs::path& folder : function.data_folders) add_in(folder, "beside the model");
  if (!function.trusted) {
    add_in(fs::absolute(file, error).parent_path(), "beside the function");
  }
  add_in(fs::current_path(error), "in the working directory");
  add("python3", kInPath);
  return places;
}

StatusOr<Interpreter> ChooseInterpreter(const FunctionConfig& function, const fs::path& file,
                                        bool runs_their_code) {
  if (!function.python_executable.empty()) {
    return Interpreter{function.python_executable, "python_executable"};
  }
  if (const std::string named = InEnvironment("CHAIRLIFT_PYTHON"); !named.empty()) {
    return Interpreter{named, "CHAIRLIFT_PYTHON"};
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path worker, FindWorkerScript());
  const fs::path script = worker.parent_path() / "_packages.py";
  std::optional<InterpreterPlace> best;
  std::vector<std::string> lacks, tried;
  for (const InterpreterPlace& place : InterpreterPlaces(function, file, runs_their_code)) {
    const auto missing = MissingIn(place.python, script, file, function.packages);
    tried.push_back(fmt::format("{} ({})", place.python, place.where));
    if (!missing || (best && missing->size() >= lacks.size())) continue;
    best = place;
    lacks = *missing;
    if (lacks.empty()) break;
  }
  if (!best) {
    return NotFound(
        "no Python could be run; tried {}. CHAIRLIFT_PYTHON names an interpreter, which needs {}",
        fmt::join(tried, ", "), fmt::join(function.packages, ", "));
  }
  Interpreter chosen{best->python, best->where};
  if (!lacks.empty()) {
    std::string pip = fmt::format("{} -m pip", best->python);
    std::vector<std::string> wanted = lacks;
    if (best->where == kInPath) {
      // Do not install into the system's interpreter. An environment here is found the next time,
      // and is empty now.
      pip = "python3 -m venv .venv && .venv/bin/pip";
      for (const std::string& package : function.packages) {
        if (std::find(lacks.begin(), lacks.end(), package) == lacks.end()) {
          wanted.push_back(package);
        }
      }
    }
    chosen.lacks =
        fmt::format("lacks {}: `{} install {}`, or have CHAIRLIFT_PYTHON name another; tried {}",
                    fmt::join(lacks, ", "), pip, fmt::join(wanted, " "), fmt::join(tried, ", "));
  }
  return chosen;
}

StatusOr<Interpreter> TryInterpreter(const FunctionConfig& function, const fs::path& file,
                                     bool runs_their_code) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Interpreter chosen,
                             ChooseInterpreter(function, file, runs_their_code));
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path worker, FindWorkerScript());
  const auto missing =
      MissingIn(chosen.python, worker.parent_path() / "_packages.py", file, function.packages);
  if (!missing) {
    return NotFound("{} ({}) cannot be run; name an interpreter of Python 3 that can",
                    chosen.python, chosen.where);
  }
  if (chosen.lacks.empty() && !missing->empty()) {
    chosen.lacks = fmt::format("lacks {0}: `{1} -m pip install {2}`", fmt::join(*missing, ", "),
                               chosen.python, fmt::join(*missing, " "));
  }
  return chosen;
}

StatusOr<std::string> FindInterpreter(const FunctionConfig& function, const fs::path& file,
                                      bool runs_their_code) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Interpreter chosen,
                             ChooseInterpreter(function, file, runs_their_code));
  if (!function.python_executable.empty()) return chosen.python;
  const std::string taken = fmt::format("Python: {} ({})", chosen.python, chosen.where);
  if (chosen.lacks.empty()) {
    LogOnce(spdlog::level::info, taken);
  } else {
    LogOnce(spdlog::level::warn, taken + " " + chosen.lacks);
  }
  return chosen.python;
}

}  // namespace chairlift
