// An accepted request, from admission to its answer.
#ifndef CHAIRLIFT_ENGINE_REQUEST_H_
#define CHAIRLIFT_ENGINE_REQUEST_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "batching/scheduler.h"
#include "chairlift/engine.h"
#include "engine/model.h"

namespace chairlift {

// The answer to a client that keeps order: told when all before it are.
struct AnswerSlot {
  InferCallback callback;
  std::optional<StatusOr<InferResponse>> answer;
};

struct Request {
  RequestId number = 0;  // what Cancel() takes
  std::string id;        // the caller's, echoed
  std::shared_ptr<Model> model;
  FittingRequest fitting;
  ClientId client = 0;
  std::optional<std::chrono::microseconds> timeout;  // as asked for
  TimePoint arrival;
  std::optional<TimePoint> deadline;
  InferCallback callback;

  // The dispatcher's, under its lock.
  CellType type = 0;
  bool running = false;
  bool cancelled = false;            // while it ran
  std::shared_ptr<AnswerSlot> slot;  // where the client keeps order
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUEST_H_
