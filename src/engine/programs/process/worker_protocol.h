// One worker as the server sees it, without descriptors and processes: a state machine that checks
// every message of the worker against its assigned batches.
//
//   loading → ready (batches in flight, in order) → closed
//
// Batches end in the order in which they were started. No part of a message is used before
// Receive() has checked it. After that, outputs are inside their assigned memory, with types and
// shapes allowed by the signature and the batch's rows. Their bytes may be anything, and may change
// while they are read.
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
    int64_t tokens = 0;        // of all rows, if inputs are ragged
    uint64_t output_room = 0;  // bytes
  };

  bool ready() const { return ready_.has_value(); }
  const WorkerReady& signature() const { return *ready_; }
  const std::deque<Batch>& in_flight() const { return in_flight_; }

  // The worker gets a batch; it must be ready, and `sequence` higher than all before.
  void Begin(const Batch& batch);
  // Answers the worker's request for room: its batch now has that many bytes for its outputs, or
  // (0) no more than before.
  void Grant(uint64_t room);

  // Checks a message from the worker. A result or a failure is for in_flight()'s first batch, which
  // is then removed. A part, a call and a request for room are for it too; the last is answered by
  // Grant(). InvalidArgument if a correct worker would not have sent it: nothing further from it
  // may be used.
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
  bool needs_room_ = false;      // the first has asked and was not answered
  bool asked_for_room_ = false;  // the first has asked
  bool called_ = false;          // the first has called a model
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_PROTOCOL_H_
