#include "engine/programs/process/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/status.h"
#include "engine/programs/process/messages.h"

namespace chairlift {
namespace {

constexpr int kWorkerSocket = 3;  // in the worker
constexpr size_t kMaxLine = 4096;
constexpr size_t kMaxLinesKept = 20;
constexpr char kErrorMark = '\x02';  // as _worker.py
constexpr size_t kMaxOutputAtOnce = size_t{64} << 10;

Status SystemError(const char* what) {
  return ResourceExhausted("{}: {}", what, std::strerror(errno));
}

void CloseAll(std::initializer_list<int> descriptors) {
  for (const int descriptor : descriptors) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

// Starts a process in its own group, with no descriptors of the server except a socket, and default
// signal handling.
int Spawn(const std::vector<std::string>& arguments, int socket, int output, pid_t& pid) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.data()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, kWorkerSocket);
#if __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&actions, kWorkerSocket + 1);
#endif
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
  const int error = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const Options& options) {
  std::array<int, 2> sockets{-1, -1}, pipe{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return SystemError("a socket for a worker");
  }
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    const Status status = SystemError("a pipe for a worker");
    CloseAll({sockets[0], sockets[1]});
    return status;
  }
  // The worker's end blocks when the pipe is full. A descriptor that is its own target would be
  // closed when the worker starts.
  ::fcntl(pipe[1], F_SETFL, ::fcntl(pipe[1], F_GETFL) & ~O_NONBLOCK);
  std::unique_ptr<WorkerProcess> process(new WorkerProcess());
  process->socket_ = sockets[0];
  process->output_ = pipe[0];
  int worker_socket = sockets[1];
  if (worker_socket <= kWorkerSocket) {
    worker_socket = ::fcntl(sockets[1], F_DUPFD_CLOEXEC, kWorkerSocket + 1);
    ::close(sockets[1]);
  }
  const std::vector<std::string> arguments = {
      options.python,
      "-u",
      options.script.string(),
      std::to_string(kWorkerSocket),
      std::to_string(::getpid()),
      options.file.string(),
      options.function,
      options.parts,
      options.argument,
  };
  const int error = Spawn(arguments, worker_socket, pipe[1], process->pid_);
  CloseAll({worker_socket, pipe[1]});
  if (error != 0) {
    process->pid_ = -1;
    return NotFound(
        "'{}' cannot be started: {}; `python_executable` in model.yaml or CHAIRLIFT_PYTHON names "
        "another interpreter",
        options.python, std::strerror(error));
  }
  if (options.max_memory_bytes > 0) {
    // The limit counts memory that the worker allocates and may write to. Mapped files and
    // addresses that are only reserved do not count. It is set before the interpreter has read a
    // line of the function.
    const auto bytes = static_cast<rlim_t>(options.max_memory_bytes);
    const rlimit limit{bytes, bytes};
    if (::prlimit(process->pid_, RLIMIT_DATA, &limit, nullptr) != 0) {
      return SystemError("max_memory_bytes of a worker");  // it is killed
    }
  }
#ifdef SYS_pidfd_open
  process->ended_ = static_cast<int>(::syscall(SYS_pidfd_open, process->pid_, 0));
#endif
  process->message_.resize(kMaxMessageBytes + 1);
  return process;
}

WorkerProcess::~WorkerProcess() {
  Reap();
  CloseAll({socket_, output_, ended_});
}

Status WorkerProcess::Send(std::span<const char> message, std::span<const int> descriptors) const {
  iovec data{const_cast<char*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const passed = CMSG_FIRSTHDR(&header);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(passed), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t sent = ::sendmsg(socket_, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent >= 0 ? absl::OkStatus() : SystemError("a message to a worker");
}

StatusOr<std::span<const std::byte>> WorkerProcess::Receive() {
  iovec data{message_.data(), message_.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;  // no room for descriptors: those that a worker passes are dropped
  ssize_t got = -1;
  do {
    got = ::recvmsg(socket_, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::span<const std::byte>();
  if (got <= 0) return NotFound("its socket is closed");
  return std::span<const std::byte>(message_).first(static_cast<size_t>(got));
}

void WorkerProcess::CloseSending() const { ::shutdown(socket_, SHUT_WR); }

std::vector<WorkerProcess::Line> WorkerProcess::ReadOutput() {
  std::vector<Line> lines;
  std::array<char, 4096> text;
  const auto end_line = [&] {
    const bool error = line_.starts_with(kErrorMark);
    if (error) line_.erase(0, 1);
    last_output_.push_back(line_);
    if (last_output_.size() > kMaxLinesKept) last_output_.pop_front();
    lines.push_back({std::move(line_), error});
    line_.clear();
  };
  for (size_t all = 0; all < kMaxOutputAtOnce;) {
    const ssize_t got = ::read(output_, text.data(), text.size());
    if (got <= 0) break;
    all += static_cast<size_t>(got);
    for (const char c : std::span(text).first(static_cast<size_t>(got))) {
      const bool mark = c == kErrorMark && line_.empty();
      const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\t' && !mark;
      if (c == '\n' || line_.size() >= kMaxLine) end_line();
      if (c != '\n') line_ += control ? ' ' : c;
    }
  }
  return lines;
}

void WorkerProcess::Kill() const {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

std::string WorkerProcess::Reap() {
  if (pid_ <= 0) return "has ended";
  siginfo_t ended{};
  // Its exit status is not collected until the group has been killed: until then its process id
  // cannot be reused.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      ended.si_pid == 0) {
    ended = {};
  }
  ::kill(-pid_, SIGKILL);
  if (ended.si_pid == 0) ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(status)) return fmt::format("exited with code {}", WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return fmt::format("was killed by signal {} ({})", number, ::strsignal(number));
}

int64_t WorkerProcess::ResidentBytes() const {
  if (pid_ <= 0) return 0;
  std::array<char, 128> text{};
  const int file = ::open(fmt::format("/proc/{}/statm", pid_).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  long all = 0, resident = 0;
  if (bytes <= 0 || std::sscanf(text.data(), "%ld %ld", &all, &resident) != 2) return 0;
  return int64_t{resident} * ::sysconf(_SC_PAGESIZE);
}

}  // namespace chairlift
