// When a worker that has ended is replaced.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_RESTART_POLICY_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_RESTART_POLICY_H_

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace chairlift {

// As many as there are workers are replaced at once; further ones, with no batch computed in
// between by any worker, after 0.1 s, 0.2 s, 0.4 s … 30 s. Not thread-safe.
class RestartPolicy {
 public:
  explicit RestartPolicy(int workers) : workers_(workers) {}

  // A batch was computed.
  void Computed() { deaths_ = 0; }
  // A worker has ended by itself, or failed to start. How long to wait.
  Duration Died() {
    constexpr int kMostDoublings = 9;
    ++deaths_;
    if (!looping()) return Duration(0);
    const int doublings = std::min(deaths_ - workers_ - 1, kMostDoublings);
    return std::min<Duration>(std::chrono::milliseconds(100) * (1 << doublings),
                              std::chrono::seconds(30));
  }
  // In a row.
  int deaths() const { return deaths_; }
  // Whether they have ended so often that they are likely to do so again.
  bool looping() const { return deaths_ > workers_; }

 private:
  const int workers_;
  int deaths_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_RESTART_POLICY_H_
