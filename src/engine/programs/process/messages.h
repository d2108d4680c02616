// The messages between the server and a worker of a Python model: one datagram each, in the byte
// order of the machine. README.md has the layout; python/chairlift/_worker.py is the other side.
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

// To the worker: a batch. A room that is not 0 is the size in bytes of a new region for the slot,
// whose descriptor comes with the message: first that of the inputs, then that of the outputs.
struct RunMessage {
  uint64_t sequence = 0;
  uint32_t slot = 0;
  uint32_t rows = 0;
  uint64_t input_room = 0;
  uint64_t output_room = 0;
  // For kBytes: their bytes, uint8 [bytes]. After the inputs come offsets, int64 [rows + 1]: those
  // of each kBytes input in order, then those that all ragged inputs share.
  std::vector<PlacedTensor> inputs;
};
// InvalidArgument if it would be longer than kMaxMessageBytes.
StatusOr<std::string> Encode(const RunMessage& message);
// The region that WorkerNeedsRoom asked for, of that many bytes, to be filled from its start. Its
// descriptor is sent too, unless the worker has it already. 0: refused.
std::string EncodeRoom(uint64_t room);
std::string EncodeStop();
// Adjacent rows of a batch whose results are no longer needed.
struct CancelledRows {
  uint32_t first = 0;
  uint32_t count = 0;
};
// The results of the batch, or of at least one of its rows, are no longer needed.
std::string EncodeCancel(uint64_t sequence);
std::string EncodeCancel(uint64_t sequence, const CancelledRows& rows);

struct NamedPlacedTensor {
  std::string name;
  PlacedTensor tensor;
};
// The answer to a call, in a region of `bytes` bytes whose descriptor is sent too; or an error.
StatusOr<std::string> EncodeAnswer(uint64_t call, uint64_t bytes,
                                   const std::vector<NamedPlacedTensor>& outputs);
std::string EncodeCallFailed(uint64_t call, const Status& why);

// From the worker, which is not trusted: parsing checks the bounds above and nothing else
// (worker_protocol.h).
struct WorkerReady {
  std::vector<SymbolicSpec> inputs, outputs;  // dimensions are known or unknown, never symbols
  // Whether each is ragged: its rows have different lengths, the same in all ragged tensors, and
  // are concatenated along dimension 0.
  std::vector<bool> ragged_inputs, ragged_outputs;
  // Whether each output comes with its own offsets: because it is kBytes, or ragged with lengths
  // that no input has.
  std::vector<bool> own_offsets;
  // Results are produced step by step: outputs are [rows, steps, …].
  bool streams = false;
};
struct WorkerLoadFailed {
  std::string why;
};
struct WorkerResult {
  uint64_t sequence = 0;
  // As in RunMessage: after the outputs, the offsets of those that have their own.
  std::vector<PlacedTensor> outputs;
};
// More steps of the outputs, before the result, which does not repeat them.
struct WorkerPart {
  uint64_t sequence = 0;
  std::vector<PlacedTensor> outputs;
};
struct WorkerNeedsRoom {
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};
// The code calls another model while it computes a batch.
struct WorkerCall {
  uint64_t call = 0;  // its number, for the answer
  uint64_t sequence = 0;
  int64_t timeout_us = 0;  // 0: no timeout
  std::string model;
  // In the outputs' region. For kBytes: the offsets of its elements, int64 [elements + 1], followed
  // by their bytes; the same in answers.
  std::vector<NamedPlacedTensor> inputs;
};
struct WorkerFailed {
  uint64_t sequence = 0;
  std::string why;
  bool refused = false;  // the code says that its input is wrong
};
using WorkerMessage = std::variant<WorkerReady, WorkerLoadFailed, WorkerResult, WorkerPart,
                                   WorkerCall, WorkerNeedsRoom, WorkerFailed>;

// InvalidArgument says what is wrong with it.
StatusOr<WorkerMessage> ParseWorkerMessage(std::span<const std::byte> message);
// Encodes a message as a worker would; for tests.
std::string Encode(const WorkerMessage& message);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MESSAGES_H_
