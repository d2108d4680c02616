#include "cli/server_process.h"

#include <fcntl.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "cli/flags.h"
#include "cli/heap_trim.h"

namespace chairlift {
namespace {

// Does not allocate: memory may be exhausted.
int64_t ResidentBytes() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 128> text{};  // total pages, resident pages, …
  const ssize_t bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  char* at = text.data();
  if (bytes > 0) std::strtoll(at, &at, 10);
  return std::strtoll(at, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

// Freed memory in the C library's heaps, whether or not it was returned to the system.
int64_t FreeHeapBytes() { return static_cast<int64_t>(mallinfo2().fordblks); }

bool HasEnded(int parent) {
  char byte = 0;
  return parent >= 0 && ::recv(parent, &byte, 1, MSG_DONTWAIT) == 0;
}

// Threads that models start while they load do not block signals. Once the server is ready, a
// signal that such a thread receives is passed to the thread that waits for signals.
pthread_t waiting_thread;
std::atomic<bool> is_ready{false};

// Until the server is ready, and once it drains, a signal ends the program, as by default. The
// first process of a container has no default action.
void OnSignal(int number) {
  if (is_ready) {
    ::pthread_kill(waiting_thread, number);
    return;
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
  ::_exit(128 + number);
}

}  // namespace

void ReturnLargeBuffers() {
  constexpr int kLarge = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_TRIM_THRESHOLD, 8 * kLarge);
}

Status CheckParent(int descriptor) {
  if (descriptor < 0) return absl::OkStatus();
  int type = 0;
  socklen_t bytes = sizeof(type);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0) return absl::OkStatus();
  return Usage(InvalidArgument("--parent-fd {}: it is not an open socket", descriptor));
}

std::string Reachable(const std::string& address) {
  if (address == "0.0.0.0") return "127.0.0.1";
  return address == "[::]" || address == "::" ? "[::1]" : address;
}

void ReportTo(int parent, const std::string& address, const Server& server) {
  if (parent < 0) return;
  std::string text = HostAndPort(Reachable(address), server.http_port());
  if (server.metrics_port() >= 0) {
    text += " " + HostAndPort(Reachable(address), server.metrics_port());
  }
  text += "\n";
  (void)::send(parent, text.data(), text.size(), MSG_NOSIGNAL);
}

sigset_t SignalSet(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

void KeepRunning() {
  ::signal(SIGPIPE, SIG_IGN);
  const sigset_t hangup = SignalSet({SIGHUP});
  pthread_sigmask(SIG_BLOCK, &hangup, nullptr);
  waiting_thread = pthread_self();
  struct sigaction end = {};
  end.sa_handler = OnSignal;
  end.sa_flags = SA_NODEFER;
  for (const int number : {SIGTERM, SIGINT}) ::sigaction(number, &end, nullptr);
}

void SetWaitsForSignals(bool waits) { is_ready = waits; }

int WaitForEnd(int parent) {
  const sigset_t signals = SignalSet({SIGTERM, SIGINT, SIGHUP});
  const timespec interval{.tv_sec = parent < 0 ? 5 : 1, .tv_nsec = 0};
  HeapTrim trim({.resident = ResidentBytes(), .free = FreeHeapBytes()});
  while (!HasEnded(parent)) {
    const int number = sigtimedwait(&signals, nullptr, &interval);
    if (number == SIGTERM || number == SIGINT) return number;
    if (number == SIGHUP)
      spdlog::info("SIGHUP is ignored: restart the server to read models and flags again");
    if (!trim.Due(ResidentBytes(), FreeHeapBytes)) continue;
    malloc_trim(0);
    trim.Trimmed({.resident = ResidentBytes(), .free = FreeHeapBytes()});
  }
  return 0;
}

}  // namespace chairlift
