// Work that was admitted and is not in its queue yet.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_
#define CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "batching/fair_share.h"
#include "chairlift/engine.h"
#include "engine/execution/model.h"
#include "engine/execution/request_costs.h"

namespace chairlift {

// Requests that will come to a model, and their expected work, counted in its queue
// (ModelQueue::coming_ns) while this exists. The model must outlive it. Two instances that are made
// at the same moment are ordered: exactly one of them counts the other as coming before it.
class Coming {
 public:
  Coming() = default;
  Coming(Model& model, int64_t times, Duration work);
  ~Coming() { Release(); }
  Coming(Coming&& other) noexcept { *this = std::move(other); }
  Coming& operator=(Coming&& other) noexcept;

  void Release();
  // Splits off one of the requests, with its part of the work. times() must be at least 1.
  Coming TakeOne();
  int64_t times() const { return times_; }
  Duration work() const { return work_; }
  // Requests and work that were still to come when this was made.
  int64_t times_before() const { return times_before_; }
  Duration work_before() const { return work_before_; }

 private:
  Model* model_ = nullptr;
  int64_t times_ = 0;
  Duration work_{0};
  int64_t times_before_ = 0;
  Duration work_before_{0};
};

// The requests that will result from an accepted one: the request itself if it is not parsed yet;
// or, for a model that calls other models, its requests to those. Each of them holds this object.
// Requests that have not arrived when the last holder releases it never will. Thread-safe.
class Admission {
 public:
  // `front`: the costs of the model that was asked, which learn from its requests; `bytes`: of the
  // request's inputs; `body`: of a request that is not parsed yet.
  Admission(const FairShare::Client& caller, TimePoint begun, std::shared_ptr<RequestCosts> front,
            int64_t bytes, const std::optional<UnreadBody>& body)
      : caller_(caller), begun_(begun), front_(std::move(front)), bytes_(bytes), body_(body) {}
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // Requests will come to the model; the first of them is expected to wait there for `wait` since
  // begun(). Call it before another thread can use this object.
  void Expect(std::shared_ptr<Model> model, Coming coming, Duration wait);
  // One of them has arrived: its part of the work, and the expected wait if it is the first
  // (otherwise 0).
  struct Arrival {
    std::optional<Coming> coming;  // absent: it was not expected
    Duration wait{0};
  };
  Arrival Arrived(const Model& model);
  // A request that had arrived has left the model.
  void Ran(const Model& model, const MeasuredCost& cost);

  // If the work that was expected at the model is at least about `work`: the expected wait there.
  std::optional<Duration> Covers(const Model& model, Duration work) const;
  // Gives up the requests that have not arrived.
  void GiveBack();

  const std::shared_ptr<RequestCosts>& front() const { return front_; }
  const std::optional<UnreadBody>& body() const { return body_; }
  const FairShare::Client& caller() const { return caller_; }
  TimePoint begun() const { return begun_; }

 private:
  struct Expected {
    std::shared_ptr<Model> model;
    Coming coming;
    Duration wait{0};
    MeasuredCost cost = {};  // of the requests that have left the model
  };

  const FairShare::Client caller_;
  const TimePoint begun_;
  const std::shared_ptr<RequestCosts> front_;
  const int64_t bytes_;
  const std::optional<UnreadBody> body_;
  mutable std::mutex mutex_;
  std::vector<Expected> expected_;  // guarded by mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_
