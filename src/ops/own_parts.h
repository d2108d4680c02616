// Parts of a recurring job, where each worker takes its own part if possible: its caches may still
// hold the data of that part.
#ifndef CHAIRLIFT_OPS_OWN_PARTS_H_
#define CHAIRLIFT_OPS_OWN_PARTS_H_

#include <array>
#include <atomic>
#include <cassert>

#include "device/cpu/team.h"

namespace chairlift {

// Made for one Team::For(), whose body calls Take() once per part. A team gives parts to the next
// free worker, so a late worker loses its own part only when another worker has nothing else to do.
class OwnParts {
 public:
  explicit OwnParts(int parts) : parts_(parts) { assert(parts <= Team::kMaxWorkers); }

  // The part with the worker's number if it is free, else the next free one after it.
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
