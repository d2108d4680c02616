// The process of one worker of a Python model: starts it, reads from it, and ends it.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROCESS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROCESS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chairlift/status.h"

namespace chairlift {

// Not thread-safe, except for Send(). The process ends at the latest with the thread that started
// it.
class WorkerProcess {
 public:
  struct Options {
    std::string python;            // a name in PATH, or a path
    std::filesystem::path script;  // _worker.py
    std::filesystem::path file;    // of the Python code
    std::string function;
    std::string parts;             // WorkerGroup::Options
    std::string argument = {};     // of the class, where it is not empty
    int64_t max_memory_bytes = 0;  // that it, and each process it forks, may allocate; 0: any
  };
  // Returns once it has been started; it may still fail.
  static StatusOr<std::unique_ptr<WorkerProcess>> Start(const Options& options);
  // Kills it and its child processes, except those in other process groups.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Descriptors to watch for input. `ended` is −1 if the system has no such descriptors; then the
  // socket's end is used.
  int socket() const { return socket_; }
  int output() const { return output_; }
  int ended() const { return ended_; }

  // Sends one message with up to two descriptors. Does not wait: ResourceExhausted if the worker
  // has not read earlier messages.
  Status Send(std::span<const char> message, std::span<const int> descriptors) const;
  // The next message. Empty: there is none yet; NotFound: the other end is closed.
  StatusOr<std::span<const std::byte>> Receive();
  // No more messages are sent; the worker ends once it has read the earlier ones.
  void CloseSending() const;
  struct Line {
    std::string text;
    bool error = false;  // from an exception of the code, as marked by _worker.py
  };
  // Complete lines from its standard output and error.
  std::vector<Line> ReadOutput();
  // The last of those lines, which may explain why it ended.
  const std::deque<std::string>& last_output() const { return last_output_; }

  void Kill() const;
  // Kills it if it still runs. Returns "exited with code 3", "was killed by signal 9 (Killed)".
  std::string Reap();
  // Its memory in bytes; 0: unknown.
  int64_t ResidentBytes() const;

 private:
  WorkerProcess() = default;

  pid_t pid_ = -1;  // −1: its exit status was collected
  int socket_ = -1;
  int output_ = -1;
  int ended_ = -1;
  std::vector<std::byte> message_;
  std::string line_;  // the incomplete line
  std::deque<std::string> last_output_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROCESS_H_
