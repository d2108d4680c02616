#include "engine/programs/process/worker_protocol.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <string>

#include "base/status.h"

namespace chairlift {
namespace {

// Names are made known to clients, and must tell tensors apart; dimension 0 is the rows.
Status CheckSignature(std::span<const SymbolicSpec> tensors, const char* kind) {
  if (tensors.empty()) return InvalidArgument("a function without {}s", kind);
  std::set<std::string_view> names;
  for (const SymbolicSpec& tensor : tensors) {
    if (tensor.name.empty() || !names.insert(tensor.name).second) {
      return InvalidArgument("{} name '{}' is empty or used twice", kind, tensor.name);
    }
    if (!tensor.shape.has_rank()) continue;
    if (tensor.shape.rank() == 0 || tensor.shape[0].known()) {
      return InvalidArgument("{} '{}' has shape {}; its first dimension must be the rows", kind,
                             tensor.name, tensor.shape.ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace

void WorkerProtocol::Begin(const Batch& batch) {
  assert(ready() && !closed_);
  assert(in_flight_.empty() || in_flight_.back().sequence < batch.sequence);
  in_flight_.push_back(batch);
}

void WorkerProtocol::Grant(uint64_t room) {
  assert(needs_room_);
  needs_room_ = false;
  if (room > 0) in_flight_.front().output_room = room;
}

Status WorkerProtocol::CheckSequence(uint64_t sequence) const {
  if (in_flight_.empty()) {
    return InvalidArgument("batch {} was answered, and none is in flight", sequence);
  }
  if (in_flight_.front().sequence != sequence) {
    return InvalidArgument("batch {} was answered before batch {}", sequence,
                           in_flight_.front().sequence);
  }
  if (needs_room_) {
    return InvalidArgument("batch {} was answered before the room it asked for came", sequence);
  }
  return absl::OkStatus();
}

Status WorkerProtocol::CheckOutput(const PlacedTensor& output, size_t index,
                                   const Batch& batch) const {
  const SymbolicSpec& expected = ready_->outputs[index];
  const int64_t first = ready_->ragged_outputs[index] ? batch.tokens : batch.rows;
  const Shape& shape = output.shape;
  bool fits = output.dtype == expected.dtype && shape.rank() > 0 && shape[0] == first;
  if (fits && expected.shape.has_rank()) {
    fits = shape.rank() == expected.shape.rank();
    for (int axis = 1; fits && axis < shape.rank(); ++axis) {
      const Dim& dim = expected.shape[axis];
      fits = !dim.known() || dim.value() == shape[axis];
    }
  }
  if (!fits) {
    return InvalidArgument("output '{}' of a batch of {} rows is {} {}; it must be {} {}",
                           expected.name, first, DTypeName(output.dtype), shape.ToString(),
                           DTypeName(expected.dtype), expected.shape.ToString());
  }
  const size_t element = DTypeSize(output.dtype);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements, shape.Checked(element));
  const uint64_t bytes = static_cast<uint64_t>(elements) * element;
  if (output.offset % element != 0 || output.offset > batch.output_room ||
      bytes > batch.output_room - output.offset) {
    return InvalidArgument("output '{}' of {} bytes at {} does not lie in the {} bytes given",
                           expected.name, bytes, output.offset, batch.output_room);
  }
  return absl::OkStatus();
}

Status WorkerProtocol::Check(const WorkerMessage& message) const {
  if (closed_) return InvalidArgument("a message after it failed to load");
  if (const auto* said = std::get_if<WorkerReady>(&message)) {
    if (ready()) return InvalidArgument("it was ready before");
    CHAIRLIFT_RETURN_IF_ERROR(CheckSignature(said->inputs, "input"));
    CHAIRLIFT_RETURN_IF_ERROR(CheckSignature(said->outputs, "output"));
    const auto any = [](const std::vector<bool>& ragged) {
      return std::find(ragged.begin(), ragged.end(), true) != ragged.end();
    };
    if (any(said->ragged_outputs) && !any(said->ragged_inputs)) {
      return InvalidArgument(
          "a ragged output has the lengths of a ragged input, and there is none");
    }
    return absl::OkStatus();
  }
  if (std::holds_alternative<WorkerLoadFailed>(message)) {
    return ready() ? InvalidArgument("it failed to load after it was ready") : absl::OkStatus();
  }
  if (const auto* failed = std::get_if<WorkerFailed>(&message)) {
    return CheckSequence(failed->sequence);
  }
  if (const auto* needs = std::get_if<WorkerNeedsRoom>(&message)) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckSequence(needs->sequence));
    if (asked_for_room_) return InvalidArgument("batch {} asked for room twice", needs->sequence);
    if (needs->bytes <= in_flight_.front().output_room) {
      return InvalidArgument("batch {} asked for {} bytes and has {}", needs->sequence,
                             needs->bytes, in_flight_.front().output_room);
    }
    return absl::OkStatus();
  }
  const auto& result = std::get<WorkerResult>(message);
  CHAIRLIFT_RETURN_IF_ERROR(CheckSequence(result.sequence));
  if (result.outputs.size() != ready_->outputs.size()) {
    return InvalidArgument("{} outputs; the function has {}", result.outputs.size(),
                           ready_->outputs.size());
  }
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckOutput(result.outputs[i], i, in_flight_.front()));
  }
  return absl::OkStatus();
}

StatusOr<WorkerMessage> WorkerProtocol::Receive(std::span<const std::byte> bytes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(WorkerMessage message, ParseWorkerMessage(bytes));
  CHAIRLIFT_RETURN_IF_ERROR(Check(message));
  if (const auto* ready = std::get_if<WorkerReady>(&message)) {
    ready_ = *ready;
  } else if (std::holds_alternative<WorkerLoadFailed>(message)) {
    closed_ = true;
  } else if (std::holds_alternative<WorkerNeedsRoom>(message)) {
    needs_room_ = asked_for_room_ = true;
  } else {
    in_flight_.pop_front();
    asked_for_room_ = false;
  }
  return message;
}

}  // namespace chairlift
