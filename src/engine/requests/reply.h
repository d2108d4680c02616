// Where a request's response goes.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_REPLY_H_
#define CHAIRLIFT_ENGINE_REQUESTS_REPLY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batching/scheduler.h"
#include "chairlift/engine.h"
#include "engine/requests/answer_parts.h"

namespace chairlift {

// The response to a client that keeps order: delivered after all before it.
struct ResponseSlot {
  InferCallback callback;
  std::optional<StatusOr<InferResponse>> answer;
};

// A request that has ended, and who gets its response.
struct Ending {
  InferCallback callback;
  std::shared_ptr<ResponseSlot> slot;  // where the client keeps order
  ClientId client = 0;
  StatusOr<InferResponse> value;
};

// The parts of an answer on their way to whoever wants them.
struct PartStream {
  std::vector<std::string> names;  // by output of the model
  PartsCallback on_parts;
  // As in InferRequest.
  bool once = false;
  std::function<int64_t()> unread;

  // ResponseSequencer's, under its lock.
  std::vector<ReadyPart> ready;
  bool delivering = false;       // some thread is at it
  bool ended = false;            // the request has: later parts are dropped
  std::optional<Ending> ending;  // to be delivered after the parts
};

// Parts as a callback takes them: outputs of the same time steps together, each output's in their
// order. `names`: by output of the model.
std::vector<InferPart> Grouped(std::span<const ReadyPart> parts,
                               std::span<const std::string> names);

// Of one request.
struct Reply {
  InferCallback callback;
  ClientId client = 0;
  std::shared_ptr<ResponseSlot> slot;  // where the client keeps order; the sequencer's
  std::shared_ptr<PartStream> parts;   // null: no parts are wanted
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_REPLY_H_
