// Expected costs of requests to a model, there and at the models that they call, by the bytes of
// their inputs.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_REQUEST_COSTS_H_
#define CHAIRLIFT_ENGINE_EXECUTION_REQUEST_COSTS_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/adaptive_mutex.h"
#include "base/clock.h"
#include "batching/size_costs.h"

namespace chairlift {

// The measured cost of a request.
struct MeasuredCost {
  Duration time{0};      // of one worker; at most that if others helped
  int batched = 1;       // requests of its largest batch
  bool helped = false;   // others helped
  bool complete = true;  // it ran to its end
};

// Thread-safe. No other lock is taken while it holds its own.
class RequestCosts {
 public:
  // The expected cost of a request of that size at the model `at`.
  SizeCosts::Prediction Predict(const std::string& at, int64_t bytes) const;
  void Learn(const std::string& at, int64_t bytes, const MeasuredCost& cost);

 private:
  mutable AdaptiveMutex mutex_;
  // By the model's name; guarded by mutex_. A model calls few others.
  absl::flat_hash_map<std::string, SizeCosts> at_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_REQUEST_COSTS_H_
