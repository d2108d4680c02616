#include "engine/programs/process/worker_protocol.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <string>

#include "base/status.h"
#include "chairlift/text.h"

namespace chairlift {
namespace {

// Clients see these names, so they must be unique; dimension 0 is the rows.
Status CheckSignature(std::span<const SymbolicSpec> tensors, const char* kind) {
  if (tensors.empty()) return InvalidArgument("the function has no {}s", kind);
  std::set<std::string_view> names;
  for (const SymbolicSpec& tensor : tensors) {
    if (tensor.name.empty() || !names.insert(tensor.name).second) {
      return InvalidArgument("{} name '{}' is empty or used twice", kind, tensor.name);
    }
    if (tensor.dtype == DType::kBytes && (!tensor.shape.has_rank() || tensor.shape.rank() != 1)) {
      return InvalidArgument("{} '{}' is text and must have one dimension, the rows", kind,
                             tensor.name);
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
    return InvalidArgument("batch {} was answered before it got the memory that it asked for",
                           sequence);
  }
  return absl::OkStatus();
}

Status WorkerProtocol::CheckOutput(const PlacedTensor& output, size_t index,
                                   const Batch& batch) const {
  static const SymbolicSpec kOffsets{"offsets", DType::kInt64, SymbolicShape({Dim()})};
  static const SymbolicSpec kTexts{"texts", DType::kUInt8, SymbolicShape({Dim()})};
  const bool offsets = index >= ready_->outputs.size();
  const bool text = !offsets && ready_->outputs[index].dtype == DType::kBytes;
  const SymbolicSpec& expected = offsets ? kOffsets : text ? kTexts : ready_->outputs[index];
  const bool any_length = !offsets && ready_->own_offsets[index];
  const Shape& shape = output.shape;
  const int64_t first = any_length && shape.rank() > 0  ? shape[0]
                        : offsets                       ? batch.rows + 1
                        : ready_->ragged_outputs[index] ? batch.tokens
                                                        : batch.rows;
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
  return CheckPlace(output, fmt::format("output '{}'", expected.name));
}

Status WorkerProtocol::CheckPlace(const PlacedTensor& tensor, const std::string& what) const {
  const uint64_t room = in_flight_.front().output_room;
  const size_t element = DTypeSize(tensor.dtype);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements, tensor.shape.Checked(element));
  const uint64_t bytes = static_cast<uint64_t>(elements) * element;
  if (tensor.offset % element == 0 && tensor.offset <= room && bytes <= room - tensor.offset) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} of {} bytes at {} does not lie in the {} bytes given", what, bytes,
                         tensor.offset, room);
}

Status WorkerProtocol::CheckCall(const WorkerCall& call) const {
  CHAIRLIFT_RETURN_IF_ERROR(CheckSequence(call.sequence));
  if (call.timeout_us < 0) return InvalidArgument("a call with a timeout of {}", call.timeout_us);
  for (const auto& [name, tensor] : call.inputs) {
    PlacedTensor placed = tensor;
    if (tensor.dtype == DType::kBytes) {  // their offsets, which are checked when they are copied
      CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t texts, tensor.shape.Checked(sizeof(int64_t)));
      placed = {DType::kInt64, Shape{texts + 1}, tensor.offset};
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckPlace(placed, fmt::format("input '{}' of a call", name)));
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
    for (size_t i = 0; i < said->outputs.size(); ++i) {
      if ((said->outputs[i].dtype == DType::kBytes) > said->own_offsets[i]) {
        return InvalidArgument("output '{}' is text, without offsets of its own",
                               said->outputs[i].name);
      }
    }
    if (any(said->ragged_outputs) && !any(said->ragged_inputs)) {
      return InvalidArgument(
          "a ragged output takes its lengths from a ragged input, but no input is ragged");
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
    // For a result; code that streams or calls other models may ask more than once.
    if (asked_for_room_ && !ready_->streams && !called_) {
      return InvalidArgument("batch {} asked for room twice", needs->sequence);
    }
    // The earlier output of a stream has been taken: it may ask for the same room again.
    if (!ready_->streams && needs->bytes <= in_flight_.front().output_room) {
      return InvalidArgument("batch {} asked for {} bytes and has {}", needs->sequence,
                             needs->bytes, in_flight_.front().output_room);
    }
    return absl::OkStatus();
  }
  if (const auto* call = std::get_if<WorkerCall>(&message)) return CheckCall(*call);
  if (const auto* part = std::get_if<WorkerPart>(&message)) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckSequence(part->sequence));
    if (!ready_->streams)
      return InvalidArgument("a part of a result, which does not come in parts");
    return CheckOutputs(part->outputs);
  }
  const auto& result = std::get<WorkerResult>(message);
  CHAIRLIFT_RETURN_IF_ERROR(CheckSequence(result.sequence));
  return CheckOutputs(result.outputs);
}

Status WorkerProtocol::CheckOutputs(const std::vector<PlacedTensor>& outputs) const {
  const size_t expected =
      ready_->outputs.size() +
      static_cast<size_t>(std::count(ready_->own_offsets.begin(), ready_->own_offsets.end(), true));
  if (outputs.size() != expected) {
    return InvalidArgument("{} outputs, with offsets; the function has {}", outputs.size(),
                           expected);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckOutput(outputs[i], i, in_flight_.front()));
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
  } else if (std::holds_alternative<WorkerCall>(message)) {
    called_ = true;
  } else if (!std::holds_alternative<WorkerPart>(message)) {
    in_flight_.pop_front();
    asked_for_room_ = called_ = false;
  }
  return message;
}

}  // namespace chairlift
