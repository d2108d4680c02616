// What the fuzzer of worker messages does with one input, shared with the test that replays what it
// kept.
#ifndef CHAIRLIFT_TESTS_FUZZ_WORKER_CASE_H_
#define CHAIRLIFT_TESTS_FUZZ_WORKER_CASE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <variant>

#include "engine/programs/process/worker_protocol.h"

namespace chairlift {

// A worker that says anything at all: of the input, two bytes are a message's length, as many bytes
// the message; a length of 0 stands for a batch that it is given. Every output that is accepted
// lies in the memory of its batch.
inline void RunWorkerCase(const uint8_t* data, size_t size) {
  std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data), size);
  WorkerProtocol protocol;
  uint64_t sequence = 1;
  while (rest.size() >= 2) {
    const size_t length =
        std::min(static_cast<size_t>(rest[0]) | static_cast<size_t>(rest[1]) << 8, rest.size() - 2);
    const std::span<const std::byte> message = rest.subspan(2, length);
    rest = rest.subspan(2 + length);
    if (length == 0) {
      if (protocol.ready()) protocol.Begin({sequence++, 2, 5, 4096});
      continue;
    }
    const uint64_t room = protocol.in_flight().empty() ? 0 : protocol.in_flight()[0].output_room;
    const StatusOr<WorkerMessage> heard = protocol.Receive(message);
    if (!heard.ok()) return;
    if (std::holds_alternative<WorkerNeedsRoom>(*heard)) {
      const uint64_t bytes = std::get<WorkerNeedsRoom>(*heard).bytes;
      protocol.Grant(std::max(room, std::min<uint64_t>(bytes, 1 << 20)));
    }
    if (const auto* const call = std::get_if<WorkerCall>(&*heard)) {
      for (const auto& [name, input] : call->inputs) {
        const uint64_t bytes =
            static_cast<uint64_t>(input.shape.NumElements()) * DTypeSize(input.dtype);
        if (input.offset <= room && bytes <= room - input.offset) continue;
        std::fprintf(stderr, "broken: an input of a call outside of its batch's memory\n");
        std::abort();
      }
    }
    const auto* const result = std::get_if<WorkerResult>(&*heard);
    if (result == nullptr) continue;
    const WorkerReady& ready = protocol.signature();
    for (size_t i = 0; i < result->outputs.size(); ++i) {
      const PlacedTensor& output = result->outputs[i];
      const bool offsets = i >= ready.outputs.size();
      const bool any = !offsets && ready.own_offsets[i];
      const uint64_t bytes =
          static_cast<uint64_t>(output.shape.NumElements()) * DTypeSize(output.dtype);
      if ((any || output.shape[0] == (offsets ? 3 : 2) || output.shape[0] == 5) &&
          output.offset <= room && bytes <= room - output.offset)
        continue;
      std::fprintf(stderr, "broken: an output outside of its batch's memory\n");
      std::abort();
    }
  }
}

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_FUZZ_WORKER_CASE_H_
