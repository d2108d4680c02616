// Counts the future requests of an accepted request to other models in their queues until they
// arrive.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_
#define CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "batching/fair_share.h"
#include "engine/execution/model.h"

namespace chairlift {

// For a request to a model whose steps are requests to other models. All of these requests hold it.
// Requests that have not arrived when the last holder releases it never come. Thread-safe.
class Admission {
 public:
  Admission(const FairShare::Client& caller, TimePoint begun) : caller_(caller), begun_(begun) {}
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // That many requests will come to the model, the first of which is to wait there for `wait` since
  // begun(). Call it before another thread can use this object.
  void Expect(std::shared_ptr<Model> model, int64_t times, Duration wait);
  // One has come. Returns the wait of the first; 0 for others.
  Duration Arrived(const Model& model);

  const FairShare::Client& caller() const { return caller_; }
  TimePoint begun() const { return begun_; }

 private:
  struct Expected {
    std::shared_ptr<Model> model;
    int64_t times = 0;
    Duration wait{0};
  };

  const FairShare::Client caller_;
  const TimePoint begun_;
  std::mutex mutex_;
  std::vector<Expected> expected_;  // guarded by mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_
