// The process of one worker of a function: started, heard, and ended.
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

// Not thread-safe, but for Send(). The process ends with the thread that started it, at the latest.
class WorkerProcess {
 public:
  struct Options {
    std::string python;            // a name to be found in PATH, or a path
    std::filesystem::path script;  // _worker.py
    std::filesystem::path file;    // of the function
    std::string function;
    std::string parts;          // WorkerGroup::Options
    std::string argument = {};  // of the class, where it is not empty
  };
  // Returns once it has been started, which says nothing of what it does.
  static StatusOr<std::unique_ptr<WorkerProcess>> Start(const Options& options);
  // Kills it, and what it has forked and not put into groups of their own.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Descriptors to be watched for input. `ended` is −1 where the system has no such descriptors:
  // the socket's end has to do.
  int socket() const { return socket_; }
  int output() const { return output_; }
  int ended() const { return ended_; }

  // One message, with up to two descriptors. Does not wait: ResourceExhausted where the worker has
  // not read what it was sent before.
  Status Send(std::span<const char> message, std::span<const int> descriptors) const;
  // The next message; empty: there is none yet; NotFound: its end is closed.
  StatusOr<std::span<const std::byte>> Receive();
  // No further messages are sent; the worker ends once it has read those before.
  void CloseSending() const;
  struct Line {
    std::string text;
    bool error = false;  // of an exception of the function, as _worker.py marks it
  };
  // Whole lines that it has written to standard output and error.
  std::vector<Line> ReadOutput();
  // The last of those lines, which may say why it ended.
  const std::deque<std::string>& last_output() const { return last_output_; }

  void Kill() const;
  // Kills it if it still runs; "exited with code 3", "was killed by signal 9 (Killed)".
  std::string Reap();
  // Of memory; 0: unknown.
  int64_t ResidentBytes() const;

 private:
  WorkerProcess() = default;

  pid_t pid_ = -1;  // −1: it has been reaped
  int socket_ = -1;
  int output_ = -1;
  int ended_ = -1;
  std::vector<std::byte> message_;
  std::string line_;  // the unfinished one
  std::deque<std::string> last_output_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROCESS_H_
