// When a worker that has ended is replaced.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_RESTART_POLICY_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_RESTART_POLICY_H_

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace chairlift {

// As many as there are workers are replaced at once. If no worker has computed a batch in between,
// further ones are replaced after 0.1 s, 0.2 s, 0.4 s … 30 s. Not thread-safe.
class RestartPolicy {
 public:
  explicit RestartPolicy(int workers) : workers_(workers) {}

  // A batch was computed.
  void Computed() { deaths_ = 0; }
  // A worker has ended by itself or failed to start. Returns how long to wait.
  Duration Died() {
    constexpr int kMostDoublings = 9;
    ++deaths_;
    if (!looping()) return Duration(0);
    const int doublings = std::min(deaths_ - workers_ - 1, kMostDoublings);
    return std::min<Duration>(std::chrono::milliseconds(100) * (1 << doublings),
                              std::chrono::seconds(30));
  }
  // Consecutive ones.
  int deaths() const { return deaths_; }
  // Whether they have ended so often that they will probably end again.
  bool looping() const { return deaths_ > workers_; }

 private:
  const int workers_;
  int deaths_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_RESTART_POLICY_H_
