// One worker as the server sees it, apart from descriptors and processes: a state machine that
// checks every message of the worker against what it was given to do.
//
//   loading → ready (batches in flight, in order) → closed
//
// Batches end in the order they were begun. Nothing that a worker says is used before Receive() has
// checked it: afterwards, its outputs lie inside the memory that they were given, and have types
// and shapes that the function's signature, and the batch's rows, allow. The bytes themselves may
// be anything, and may change while they are read.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROTOCOL_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "engine/programs/process/messages.h"

namespace chairlift {

// Not thread-safe.
class WorkerProtocol {
 public:
  // A batch in flight.
  struct Batch {
    uint64_t sequence = 0;
    int64_t rows = 0;
    int64_t tokens = 0;        // of all rows, where inputs are ragged
    uint64_t output_room = 0;  // bytes
  };

  bool ready() const { return ready_.has_value(); }
  const WorkerReady& signature() const { return *ready_; }
  const std::deque<Batch>& in_flight() const { return in_flight_; }

  // The worker is given a batch; it is ready, and `sequence` higher than all before.
  void Begin(const Batch& batch);
  // The worker's need of room is answered: its batch has that many bytes for its outputs now, or
  // (0) no more than before.
  void Grant(uint64_t room);

  // A message from the worker. A result or a failure is of in_flight()'s first batch, which has
  // left it then; a part, a call and a need of room are, too, and the last is answered by Grant().
  // InvalidArgument where a worker that works as it should would not have sent it: nothing further
  // of it is to be believed.
  StatusOr<WorkerMessage> Receive(std::span<const std::byte> message);

 private:
  Status Check(const WorkerMessage& message) const;
  Status CheckSequence(uint64_t sequence) const;
  Status CheckPlace(const PlacedTensor& tensor, const std::string& what) const;
  Status CheckCall(const WorkerCall& call) const;
  Status CheckOutputs(const std::vector<PlacedTensor>& outputs) const;
  Status CheckOutput(const PlacedTensor& output, size_t index, const Batch& batch) const;

  std::optional<WorkerReady> ready_;
  bool closed_ = false;  // it failed to load
  std::deque<Batch> in_flight_;
  bool needs_room_ = false;      // the first has asked, and was not answered
  bool asked_for_room_ = false;  // the first has asked
  bool called_ = false;          // the first has called a model
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROTOCOL_H_
