// How a program has other models of its engine answer requests, while it computes one of its own.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_MODEL_CALLS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_MODEL_CALLS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "chairlift/engine.h"

namespace chairlift {

class Admission;  // what an accepted request asks of other models (execution/admission.h)
class Model;      // one version as it is served (execution/model.h)
class Program;

// A model that is not freed while this is held; it may have been unloaded or replaced.
struct CalledModel {
  std::shared_ptr<Model> model;
  Program* program = nullptr;  // the model's
  // Requests with the same number are parts of one and share its turns (CellGraph::turn); 0: it has
  // turns of its own.
  uint64_t turn = 0;
};
// A number that no other request has.
uint64_t NextTurn();

// Requests that one request makes to that model.
struct ExpectedCalls {
  CalledModel model;
  int64_t times = 1;
};

// Thread-safe.
class ModelCalls {
 public:
  virtual ~ModelCalls() = default;

  // A version that is ready, the latest where it is empty; kNotFound or kUnavailable says why there
  // is none.
  virtual StatusOr<CalledModel> Find(const std::string& name, const std::string& version = "") = 0;
  // As Engine::InferAsync(), of a request that is part of one that was accepted before: it does not
  // count as one more, nor is it refused because a queue is long, or while the engine waits for
  // accepted requests to end. The model need not be found by its name any more. `admission`: the
  // accepted request's (TaskNode::admission); null where the task has several.
  virtual RequestId Begin(const CalledModel& model, InferRequest request,
                          std::shared_ptr<Admission> admission, InferCallback callback) = 0;
  virtual void Cancel(RequestId request) = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_MODEL_CALLS_H_
