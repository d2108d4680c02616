// The receiver of a request's response.
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

// The response to a client with ordered responses: delivered after all before it.
struct ResponseSlot {
  InferCallback callback;
  std::optional<StatusOr<InferResponse>> answer;
};

// An ended request and the receiver of its response.
struct Ending {
  InferCallback callback;
  std::shared_ptr<ResponseSlot> slot;  // for a client with ordered responses
  ClientId client = 0;
  StatusOr<InferResponse> value;
};

// The parts of an answer on their way to the receiver.
struct PartStream {
  std::vector<std::string> names;  // by output of the model
  PartsCallback on_parts;
  // As in InferRequest.
  bool once = false;
  std::function<int64_t()> unread;

  // For ResponseSequencer, under its lock.
  std::vector<ReadyPart> ready;
  bool delivering = false;       // a thread is delivering them
  bool ended = false;            // the request has ended: later parts are dropped
  std::optional<Ending> ending;  // delivered after the parts
};

// Parts in the form of the callback: outputs of the same time steps together, each output's in
// order. `names`: by output of the model.
std::vector<InferPart> Grouped(std::span<const ReadyPart> parts,
                               std::span<const std::string> names);

// For one request.
struct Reply {
  InferCallback callback;
  ClientId client = 0;
  std::shared_ptr<ResponseSlot> slot;  // for a client with ordered responses; used by the sequencer
  std::shared_ptr<PartStream> parts;   // null: no parts are requested
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_REPLY_H_
