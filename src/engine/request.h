// An accepted request, from admission to its answer.
#ifndef CHAIRLIFT_ENGINE_REQUEST_H_
#define CHAIRLIFT_ENGINE_REQUEST_H_

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "batching/scheduler.h"
#include "chairlift/engine.h"
#include "engine/cell_request.h"
#include "engine/model.h"

namespace chairlift {

// The answer to a client that keeps order: told when all before it are.
struct AnswerSlot {
  InferCallback callback;
  std::optional<StatusOr<InferResponse>> answer;
};

// A request that has ended, and whom to tell.
struct Ending {
  InferCallback callback;
  std::shared_ptr<AnswerSlot> slot;  // where the client keeps order
  ClientId client = 0;
  StatusOr<InferResponse> value;
};

// The parts of an answer on their way to whoever wants them.
struct PartStream {
  std::shared_ptr<Model> model;
  PartsCallback on_parts;

  // AnswerTeller's, under its lock.
  std::vector<ReadyPart> ready;
  bool telling = false;          // some thread is at it
  std::optional<Ending> ending;  // to be told after the parts
};

// Parts as a callback takes them: outputs of the same time steps together, each output's in their
// order. `name` tells an output's.
std::vector<InferPart> Grouped(std::span<const ReadyPart> parts,
                               absl::FunctionRef<const std::string&(int output)> name);

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

  // Where the model runs as cells: what it unfolded into. The dispatcher's from Submit() on.
  std::unique_ptr<CellRequest> cells;
  std::shared_ptr<PartStream> parts;  // null: nobody asks for any

  // The dispatcher's, under its lock.
  std::vector<CellType> types;   // held while it is in the engine
  std::vector<CellType> closed;  // by cell: of its nodes, where they all share a type
  absl::flat_hash_map<std::pair<int, ShapeKey>, CellType> open;  // by cell and dimensions: others'
  NodeId known = 0;                  // nodes that the scheduler has been told of
  std::optional<TimePoint> start;    // of its first node
  int widest = 0;                    // rows of the largest batch it rode in
  Status leaving;                    // why it leaves unanswered, once it is known to
  std::shared_ptr<AnswerSlot> slot;  // where the client keeps order
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUEST_H_
