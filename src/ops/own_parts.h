// Parts of a job that comes again and again, each worker its own where it can: its caches may still
// hold what that part reads.
#ifndef CHAIRLIFT_OPS_OWN_PARTS_H_
#define CHAIRLIFT_OPS_OWN_PARTS_H_

#include <array>
#include <atomic>
#include <cassert>

#include "device/cpu/team.h"

namespace chairlift {

// Made for one Team::For(), whose body calls Take() once for each part: a team gives parts to
// whoever comes next, so that who comes late loses its part only when another has nothing else.
class OwnParts {
 public:
  explicit OwnParts(int parts) : parts_(parts) { assert(parts <= Team::kMaxWorkers); }

  // The part of the worker's number, if it is free, else the next one after it that is.
  int Take(int worker) {
    int part = worker % parts_;
    while (taken_[part].exchange(true, std::memory_order_relaxed)) {
      part = part + 1 == parts_ ? 0 : part + 1;
    }
    return part;
  }

 private:
  const int parts_;
  std::array<std::atomic<bool>, Team::kMaxWorkers> taken_ = {};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_OWN_PARTS_H_
