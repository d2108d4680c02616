// How a program makes requests to other models of its engine while it computes its own.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_MODEL_CALLS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_MODEL_CALLS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "chairlift/engine.h"

namespace chairlift {

// The expected requests of an accepted request to other models (execution/admission.h).
class Admission;
class Model;  // one version as it is served (execution/model.h)
class Program;

// A model that is not freed while this exists; it may have been unloaded or replaced.
struct CalledModel {
  std::shared_ptr<Model> model;
  Program* program = nullptr;  // the model's
  // Requests with the same number are parts of one and share its turns (CellGraph::turn); 0: it has
  // separate turns.
  uint64_t turn = 0;
};
// A unique number.
uint64_t NextTurn();

// The number of requests that one request makes to that model.
struct ExpectedCalls {
  CalledModel model;
  int64_t times = 1;
};

// Thread-safe.
class ModelCalls {
 public:
  virtual ~ModelCalls() = default;

  // A ready version; the latest if `version` is empty. kNotFound or kUnavailable says why there is
  // none.
  virtual StatusOr<CalledModel> Find(const std::string& name, const std::string& version = "") = 0;
  // Like Engine::InferAsync(), for a request that is part of an accepted one. It does not count as
  // another request, and is not refused because a queue is long or the engine is draining. The
  // model may no longer be found by its name. `admission`: the accepted request's
  // (TaskNode::admission); null if the task has several requests.
  virtual RequestId Begin(const CalledModel& model, InferRequest request,
                          std::shared_ptr<Admission> admission, InferCallback callback) = 0;
  virtual void Cancel(RequestId request) = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_MODEL_CALLS_H_
