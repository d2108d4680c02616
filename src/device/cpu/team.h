// How a kernel distributes one job over workers that are otherwise idle.
#ifndef CHAIRLIFT_DEVICE_CPU_TEAM_H_
#define CHAIRLIFT_DEVICE_CPU_TEAM_H_

#include "absl/functional/function_ref.h"

namespace chairlift {

// The workers that may take part in one job. Only the job's own worker calls For(). Parts are
// claimed one by one: the first ones by the job's worker, the last ones by helpers. So a late or
// busy helper delays only parts that it has claimed, and two workers keep to the same halves from
// one For() to the next.
class Team {
 public:
  virtual ~Team() = default;

  // Workers that may take part, including the caller; 1: only the caller.
  virtual int width() const = 0;

  // Runs body(part, worker) once for each part in [0, parts), and returns when all have run. No two
  // parts run at the same time with the same `worker`, so it may index scratch memory. `worker` is
  // in [0, width()); in a team of one it is any number below kMaxWorkers. Bodies must not throw and
  // must not call For().
  virtual void For(int parts, absl::FunctionRef<void(int part, int worker)> body) = 0;

  static constexpr int kMaxWorkers = 256;
};

// A team of one: parts run in order on the calling thread, with the given worker number.
class SoloTeam : public Team {
 public:
  explicit SoloTeam(int worker = 0) : worker_(worker) {}
  int width() const override { return 1; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    for (int p = 0; p < parts; ++p) body(p, worker_);
  }

 private:
  int worker_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_TEAM_H_
