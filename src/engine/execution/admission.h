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
// (ModelQueue::coming_ns) while this exists. The model must outlive it. If several are made at the
// same moment, each has the others either before it or after it.
class Coming {
 public:
  Coming() = default;
  Coming(Model& model, int64_t times, Duration work);
  ~Coming() { Release(); }
  Coming(Coming&& other) noexcept { *this = std::move(other); }
  Coming& operator=(Coming&& other) noexcept;

  void Release();
  // One of the requests, with its part of the work. There must be one.
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

// The requests that will come of an accepted one: for a request that is not parsed yet, itself; for
// one to a model whose steps are requests to other models, these. All of them hold it. Requests
// that have not arrived when the last holder releases it never come. Thread-safe.
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

  // Requests will come to the model; the first of them is to wait there for `wait` since begun().
  // Call it before another thread can use this object.
  void Expect(std::shared_ptr<Model> model, Coming coming, Duration wait);
  // One has come: its part, and the wait of the first; 0 for others.
  struct Arrival {
    std::optional<Coming> coming;  // absent: it was not expected
    Duration wait{0};
  };
  Arrival Arrived(const Model& model);
  // A request that had come has left the model.
  void Ran(const Model& model, const MeasuredCost& cost);

  // The expected wait at the model if the work that was expected there covers `work`, about.
  std::optional<Duration> Covers(const Model& model, Duration work) const;
  // Requests that have not come yet never will.
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
    MeasuredCost cost = {};  // of those that have left
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
