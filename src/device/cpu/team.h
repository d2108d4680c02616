// How a kernel spreads one job over workers that have nothing better to do.
#ifndef CHAIRLIFT_DEVICE_CPU_TEAM_H_
#define CHAIRLIFT_DEVICE_CPU_TEAM_H_

#include "absl/functional/function_ref.h"

namespace chairlift {

// The workers that may take part in one job. Only the job's own worker calls For(); parts are
// claimed one by one, the first ones by the job's worker and the last ones by helpers, so that a
// helper that is late or busy delays nothing it has not claimed, and two workers keep to their own
// halves from one For() to the next.
class Team {
 public:
  virtual ~Team() = default;

  // Workers that may take part, the caller included; 1 means alone.
  virtual int width() const = 0;

  // Runs body(part, worker) once for each part in [0, parts), and returns when all have run. No two
  // parts run at once under one `worker`, so it may index scratch: it is in [0, width()), but in a
  // team of one any number below kMaxWorkers. Bodies must not throw and must not call For().
  virtual void For(int parts, absl::FunctionRef<void(int part, int worker)> body) = 0;

  static constexpr int kMaxWorkers = 256;
};

// A team of one: parts run in order on the calling thread, under the worker number given.
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
