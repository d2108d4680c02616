#include "engine/requests/sequences.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/closest.h"
#include "base/memory_reserve.h"
#include "base/out_of_memory.h"
#include "base/status.h"

namespace chairlift {
namespace {

int IndexOf(const std::vector<SymbolicSpec>& specs, const std::string& name) {
  const auto at = std::find_if(specs.begin(), specs.end(),
                               [&](const SymbolicSpec& spec) { return spec.name == name; });
  return at == specs.end() ? -1 : static_cast<int>(at - specs.begin());
}

// Checks that the state may start with this value, directly or repeated per row.
Status CheckInitial(const SymbolicSpec& input, const Tensor& initial) {
  const SymbolicShape& shape = input.shape;
  const Shape& own = initial.shape();
  const int rows = shape.rank() - own.rank();
  bool fits = input.dtype == initial.dtype() && (rows == 0 || rows == 1);
  for (int axis = 0; fits && axis < own.rank(); ++axis) {
    const Dim& dim = shape[axis + rows];
    fits = !dim.known() || dim.value() == own[axis];
  }
  if (fits) return absl::OkStatus();
  return InvalidArgument("initial_state: input '{}' is {} {}, and cannot begin as {} {}",
                         input.name, DTypeName(input.dtype), shape.ToString(),
                         DTypeName(initial.dtype()), own.ToString());
}

}  // namespace

StatusOr<std::shared_ptr<Sequences>> Sequences::Create(const ModelConfig& config,
                                                       const Signature& signature,
                                                       const Clock& clock,
                                                       const RequestRules& rules) {
  std::shared_ptr<Sequences> made(new Sequences(config, signature, clock));
  for (const auto& [output, input] : config.sequence_state) {
    State state{.input = IndexOf(signature.inputs, input),
                .output = IndexOf(signature.outputs, output),
                .input_name = input,
                .output_name = output};
    if (state.output < 0) {
      return InvalidArgument("sequence_state: the model has no output '{}'{}", output,
                             KnownNames(output, NamesOf(signature.outputs, &SymbolicSpec::name)));
    }
    if (state.input < 0) {
      return InvalidArgument("sequence_state: the model has no input '{}'{}", input,
                             KnownNames(input, NamesOf(signature.inputs, &SymbolicSpec::name)));
    }
    const SymbolicSpec& to = signature.inputs[state.input];
    const SymbolicSpec& from = signature.outputs[state.output];
    if (to.dtype != from.dtype) {
      return InvalidArgument("sequence_state: output '{}' is {}, input '{}' is {}", output,
                             DTypeName(from.dtype), input, DTypeName(to.dtype));
    }
    if (!to.shape.has_rank()) {
      return InvalidArgument("sequence_state: the rank of input '{}' is not known", input);
    }
    state.shown = rules.shown_states.contains(output);
    const auto first = rules.initial_state.find(input);
    if (first != rules.initial_state.end()) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckInitial(to, first->second));
      state.initial = first->second;
    }
    for (const State& other : made->states_) {
      if (other.input == state.input) {
        return InvalidArgument("sequence_state: input '{}' takes two outputs", input);
      }
    }
    made->states_.push_back(std::move(state));
  }
  return made;
}

void Sequences::Expire() {
  const TimePoint now = clock_.Now();
  const auto running =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch());
  if (config_.max_sequence_idle_us > running.count())
    // And now - idle may not be representable.
    return;
  const TimePoint oldest = now - std::chrono::microseconds(config_.max_sequence_idle_us);
  while (!idle_.empty() && sequences_.at(idle_.front()).used < oldest) {
    sequences_.erase(idle_.front());
    idle_.pop_front();
  }
}

int Sequences::size() {
  const Lock lock(mutex_);
  Expire();
  return static_cast<int>(sequences_.size());
}

StatusOr<Shape> Sequences::ShapeOf(const State& state, const InferRequest& request) const {
  const SymbolicSpec& spec = signature_.inputs[state.input];
  Shape shape;
  for (const Dim& dim : spec.shape.dims()) {
    if (dim.known()) {
      shape.Append(dim.value());
      continue;
    }
    // As in another input of the chunk; one stream if none has it.
    std::optional<int64_t> size;
    for (const NamedTensor& input : request.inputs) {
      const int index = IndexOf(signature_.inputs, input.name);
      if (index < 0 || !dim.is_symbol() || !signature_.inputs[index].shape.has_rank()) continue;
      const SymbolicShape& other = signature_.inputs[index].shape;
      for (int axis = 0; axis < other.rank() && axis < input.tensor.shape().rank(); ++axis) {
        if (other[axis].is_symbol() && other[axis].symbol() == dim.symbol()) {
          size = input.tensor.shape()[axis];
        }
      }
    }
    shape.Append(size.value_or(1));
  }
  if (state.initial.present()) {  // it determines what the others leave open
    const int rows = shape.rank() - state.initial.shape().rank();
    for (int axis = rows; axis < shape.rank(); ++axis) {
      shape[axis] = state.initial.shape()[axis - rows];
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(shape.Checked(DTypeSize(spec.dtype)).status());
  return shape;
}

StatusOr<Tensor> Sequences::First(const State& state, const InferRequest& request) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(state, request));
  Tensor first = Tensor::Allocate(signature_.inputs[state.input].dtype, shape);
  if (!state.initial.present()) {
    std::memset(first.raw(), 0, first.byte_size());
    return first;
  }
  const size_t row = state.initial.byte_size();
  auto* const to = static_cast<std::byte*>(first.raw());
  for (size_t at = 0; at < first.byte_size(); at += row) {
    std::memcpy(to + at, state.initial.raw(), row);
  }
  return first;
}

int64_t Sequences::NewBytes(const std::vector<Tensor>& state, const InferRequest& request) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!state.empty() && state[i].present()) continue;
    const StatusOr<Shape> shape = ShapeOf(states_[i], request);
    if (!shape.ok()) return 0;
    const DType dtype = signature_.inputs[states_[i].input].dtype;
    bytes += shape->NumElements() * static_cast<int64_t>(DTypeSize(dtype));
  }
  return bytes;
}

Status Sequences::Bring(const std::vector<Tensor>& state, InferRequest& request) const {
  for (const State& kept : states_) {
    const bool sent =
        std::any_of(request.inputs.begin(), request.inputs.end(),
                    [&](const NamedTensor& input) { return input.name == kept.input_name; });
    if (sent) {
      return InvalidArgument(
          "input '{}' is the sequence's state: the server keeps it, and takes none",
          kept.input_name);
    }
  }
  std::vector<NamedTensor> added;
  for (size_t i = 0; i < states_.size(); ++i) {
    Tensor brought = state.empty() ? Tensor() : state[i];
    if (!brought.present()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(brought, First(states_[i], request));
    }
    added.push_back({states_[i].input_name, std::move(brought)});
  }
  for (NamedTensor& tensor : added) request.inputs.push_back(std::move(tensor));
  return absl::OkStatus();
}

Status Sequences::CheckSent(const InferRequest& request) const {
  for (const State& state : states_) {
    const bool sent =
        std::any_of(request.inputs.begin(), request.inputs.end(),
                    [&](const NamedTensor& input) { return input.name == state.input_name; });
    if (sent) continue;
    return InvalidArgument(
        "input '{}' is missing: the server keeps it for requests with \"sequence_id\" (the first "
        "with \"sequence_start\": true); without one, send it",
        state.input_name);
  }
  return absl::OkStatus();
}

Status Sequences::NotLive(const std::string& name) const {
  return InvalidArgument(
      "sequence '{}' is not known: it was never started, has ended, or got no request for {} s; "
      "start it with sequence_start",
      name, static_cast<double>(config_.max_sequence_idle_us) * 1e-6);
}

RequestId Sequences::Submit(InferRequest request, InferCallback callback, const Run& run) {
  Status refused;
  {
    const Lock lock(mutex_);
    Expire();
    const std::string& name = request.sequence;
    auto found = sequences_.find(name);
    const bool live = found != sequences_.end() && !found->second.ending;
    if (!live && !request.sequence_start) {
      refused = NotLive(name);
    } else if (found == sequences_.end() &&
               static_cast<int>(sequences_.size()) >= config_.max_sequences) {
      refused = ResourceExhausted("{} sequences are live, the model's max_sequences; retry later",
                                  config_.max_sequences);
    } else {
      if (found == sequences_.end()) {
        found = sequences_.try_emplace(name).first;
      } else if (!found->second.running) {
        idle_.erase(found->second.place);
      }
      Sequence& sequence = found->second;
      if (sequence.running) {
        const bool ends = request.sequence_end;
        if (sequence.waiting.size() < kMaxWaiting) {
          sequence.waiting.push_back({std::move(request), std::move(callback), run});
          sequence.ending = ends;
          return 0;
        }
        refused = ResourceExhausted("{} chunks of sequence '{}' wait already; retry later",
                                    kMaxWaiting, name);
      } else {
        sequence.running = true;
        sequence.ending = request.sequence_end;
      }
    }
  }
  if (!refused.ok()) {
    callback(std::move(refused));
    return 0;
  }
  return Start({std::move(request), std::move(callback), run});
}

PartsCallback Sequences::WithoutState(PartsCallback on_parts,
                                      const std::vector<bool>& asked) const {
  std::vector<std::string> hidden;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!asked[i]) hidden.push_back(states_[i].output_name);
  }
  return [on_parts = std::move(on_parts),
          hidden = std::move(hidden)](std::span<const InferPart> parts) {
    std::vector<InferPart> shown(parts.begin(), parts.end());
    for (InferPart& part : shown) {
      std::erase_if(part.outputs, [&](const NamedTensor& output) {
        return std::find(hidden.begin(), hidden.end(), output.name) != hidden.end();
      });
    }
    std::erase_if(shown, [](const InferPart& part) { return part.outputs.empty(); });
    if (!shown.empty()) on_parts(shown);
  };
}

RequestId Sequences::Start(Chunk chunk) {
  InferRequest& request = chunk.request;
  Running running{.name = request.sequence,
                  .end = request.sequence_end,
                  .asked = {},
                  .callback = std::move(chunk.callback)};
  std::vector<Tensor> state;
  if (!request.sequence_start) {
    const Lock lock(mutex_);
    state = sequences_.at(running.name).state;
  }
  // Which states the client gets.
  std::vector<bool> asked(states_.size(), false);
  for (size_t i = 0; request.outputs.empty() && i < states_.size(); ++i) {
    asked[i] = states_[i].shown;
  }
  if (!request.outputs.empty()) {
    for (size_t i = 0; i < states_.size(); ++i) {
      const std::string& output = states_[i].output_name;
      asked[i] = std::find(request.outputs.begin(), request.outputs.end(), output) !=
                 request.outputs.end();
      if (!asked[i]) request.outputs.push_back(output);
    }
  }
  if (request.on_parts) request.on_parts = WithoutState(std::move(request.on_parts), asked);
  running.asked = std::move(asked);
  auto ended = [self = shared_from_this(), running = std::move(running)](
                   StatusOr<InferResponse> answer) { self->Ended(running, std::move(answer)); };
  const int64_t new_bytes = NewBytes(state, request);
  auto bring = [self = shared_from_this(), state = std::move(state)](InferRequest& to) {
    return self->Bring(state, to);
  };
  return chunk.run(std::move(request), {.add = std::move(bring), .new_bytes = new_bytes},
                   std::move(ended));
}

std::optional<Sequences::Chunk> Sequences::Next(const std::string& name,
                                                std::vector<Chunk>& refused) {
  Sequence& sequence = sequences_.at(name);
  while (!sequence.waiting.empty()) {
    Chunk chunk = std::move(sequence.waiting.front());
    sequence.waiting.pop_front();
    if (sequence.live || chunk.request.sequence_start) {
      if (sequence.waiting.empty()) sequence.ending = chunk.request.sequence_end;
      return chunk;
    }
    refused.push_back(std::move(chunk));
  }
  if (!sequence.live) {
    sequences_.erase(name);
    return std::nullopt;
  }
  sequence.running = sequence.ending = false;
  sequence.used = clock_.Now();
  sequence.place = idle_.insert(idle_.end(), name);
  return std::nullopt;
}

void Sequences::Ended(const Running& chunk, StatusOr<InferResponse> answer) {
  const MemoryReserve::Use use;  // the sequence's next chunk depends on it
  std::vector<Tensor> left(states_.size());
  const auto take_states = [&]() -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(answer.status());
    for (size_t i = 0; i < states_.size(); ++i) {
      auto& outputs = answer->outputs;
      const auto at = std::find_if(outputs.begin(), outputs.end(), [&](const NamedTensor& output) {
        return output.name == states_[i].output_name;
      });
      if (at == outputs.end()) continue;
      // The client may write to what it gets.
      left[i] = chunk.asked[i] ? at->tensor.Clone() : std::move(at->tensor);
      if (!chunk.asked[i]) outputs.erase(at);
    }
    return absl::OkStatus();
  };
  if (Status taken = CatchOutOfMemory(take_states); !taken.ok()) answer = std::move(taken);
  std::vector<Chunk> refused;
  std::optional<Chunk> next;
  {
    const Lock lock(mutex_);
    Sequence& sequence = sequences_.at(chunk.name);
    if (answer.ok()) {
      sequence.live = !chunk.end;
      sequence.state = sequence.live ? std::move(left) : std::vector<Tensor>();
    }
    next = Next(chunk.name, refused);
  }
  {
    const MemoryReserve::Suspend suspend;
    chunk.callback(std::move(answer));
    for (const Chunk& late : refused) late.callback(NotLive(chunk.name));
  }
  if (next) Start(*std::move(next));
}

}  // namespace chairlift
