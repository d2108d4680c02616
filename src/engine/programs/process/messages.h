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
  // Where some are ragged, the last is none of the function's: the rows' offsets, int64 [rows + 1].
  std::vector<PlacedTensor> inputs;
};
// InvalidArgument where it would be longer than kMaxMessageBytes.
StatusOr<std::string> Encode(const RunMessage& message);
// The region that WorkerNeedsRoom asked for, of so many bytes, with its descriptor; 0: refused.
std::string EncodeRoom(uint64_t room);
std::string EncodeStop();

// From the worker, which is not trusted: what parses is in the bounds above, and nothing more is
// known of it (worker_protocol.h).
struct WorkerReady {
  std::vector<SymbolicSpec> inputs, outputs;  // dimensions are known or not: there are no symbols
  // Of each, whether it is ragged: its rows have lengths of their own, and lie one after the other
  // along dimension 0.
  std::vector<bool> ragged_inputs, ragged_outputs;
};
struct WorkerLoadFailed {
  std::string why;
};
struct WorkerResult {
  uint64_t sequence = 0;
  std::vector<PlacedTensor> outputs;
};
struct WorkerNeedsRoom {
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};
struct WorkerFailed {
  uint64_t sequence = 0;
  std::string why;
};
using WorkerMessage =
    std::variant<WorkerReady, WorkerLoadFailed, WorkerResult, WorkerNeedsRoom, WorkerFailed>;

// InvalidArgument says what is wrong with it.
StatusOr<WorkerMessage> ParseWorkerMessage(std::span<const std::byte> message);
// As a worker would write it; for tests.
std::string Encode(const WorkerMessage& message);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MESSAGES_H_
