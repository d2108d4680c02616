// What the server and a worker of a function tell each other: one datagram a message, in the byte
// order of the machine that both run on. README.md has the layout; python/chairlift/_worker.py is
// the other side.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MESSAGES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "chairlift/tensor.h"
#include "runtime/executable.h"

namespace chairlift {

inline constexpr size_t kMaxMessageBytes = 65536;
inline constexpr size_t kMaxMessageTensors = 64;  // inputs, or outputs
inline constexpr int kMaxMessageRank = 32;

// A tensor in a region of shared memory.
struct PlacedTensor {
  DType dtype = DType::kUndefined;
  Shape shape;
  uint64_t offset = 0;  // bytes
  friend bool operator==(const PlacedTensor&, const PlacedTensor&) = default;
};

// To the worker. A batch; where a room is not 0, the message carries a descriptor of a new region
// of so many bytes for the slot: first the inputs', then the outputs'.
struct RunMessage {
  uint64_t sequence = 0;
  uint32_t slot = 0;
  uint32_t rows = 0;
  uint64_t input_room = 0;
  uint64_t output_room = 0;
  // Of kBytes: their bytes, uint8 [bytes]. Behind the function's inputs, the offsets, int64
  // [rows + 1], of each of kBytes in order, and those that all ragged ones share.
  std::vector<PlacedTensor> inputs;
};
// InvalidArgument where it would be longer than kMaxMessageBytes.
StatusOr<std::string> Encode(const RunMessage& message);
// The region that WorkerNeedsRoom asked for, of that many bytes. Its descriptor goes along, unless
// it is the one that the worker has, to be filled from its begin. 0: refused.
std::string EncodeRoom(uint64_t room);
std::string EncodeStop();
// Nobody waits for the batch any more.
std::string EncodeCancel(uint64_t sequence);

struct NamedPlacedTensor {
  std::string name;
  PlacedTensor tensor;
};
// The answer to a call, in a region of so many bytes whose descriptor goes along; or why there is
// none.
StatusOr<std::string> EncodeAnswer(uint64_t call, uint64_t bytes,
                                   const std::vector<NamedPlacedTensor>& outputs);
std::string EncodeCallFailed(uint64_t call, const Status& why);

// From the worker, which is not trusted: what parses is in the bounds above, and nothing more is
// known of it (worker_protocol.h).
struct WorkerReady {
  std::vector<SymbolicSpec> inputs, outputs;  // dimensions are known or not: there are no symbols
  // Of each, whether it is ragged: its rows have lengths of their own, the same in all that are,
  // and lie one after the other along dimension 0.
  std::vector<bool> ragged_inputs, ragged_outputs;
  // Of each output, whether it comes with offsets of its own: of kBytes, or ragged with lengths
  // that no input has.
  std::vector<bool> own_offsets;
  // Its results come step by step: outputs are [rows, steps, …].
  bool streams = false;
};
struct WorkerLoadFailed {
  std::string why;
};
struct WorkerResult {
  uint64_t sequence = 0;
  // As in RunMessage: behind the function's outputs, the offsets of those that have their own.
  std::vector<PlacedTensor> outputs;
};
// Further steps of the outputs, before the result, which has none of them.
struct WorkerPart {
  uint64_t sequence = 0;
  std::vector<PlacedTensor> outputs;
};
struct WorkerNeedsRoom {
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};
// The function, while it computes a batch, asks another model.
struct WorkerCall {
  uint64_t call = 0;  // its number, for the answer
  uint64_t sequence = 0;
  int64_t timeout_us = 0;  // 0: none
  std::string model;
  // In the outputs' region. Of kBytes: the offsets of its elements, int64 [elements + 1], and their
  // bytes behind these; so in an answer.
  std::vector<NamedPlacedTensor> inputs;
};
struct WorkerFailed {
  uint64_t sequence = 0;
  std::string why;
  bool refused = false;  // what it was asked is wrong, the function says
};
using WorkerMessage = std::variant<WorkerReady, WorkerLoadFailed, WorkerResult, WorkerPart,
                                   WorkerCall, WorkerNeedsRoom, WorkerFailed>;

// InvalidArgument says what is wrong with it.
StatusOr<WorkerMessage> ParseWorkerMessage(std::span<const std::byte> message);
// As a worker would write it; for tests.
std::string Encode(const WorkerMessage& message);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MESSAGES_H_
