#include "runtime/worker_memory.h"

#include <utility>

#include "base/status.h"

namespace chairlift {

StatusOr<std::vector<Tensor>> RunFromHost(Executable& executable, std::span<const Tensor> inputs,
                                          Team& team, int worker, WorkerMemory& memory) {
  Stream& stream = memory.stream();
  if (stream.device().is_host()) {
    return executable.Run(inputs, team, worker, memory.compute, memory.stop, memory.timer);
  }
  std::vector<Tensor> there, outputs, results;
  const auto enqueue = [&]() -> Status {
    for (const Tensor& input : inputs) {
      CHAIRLIFT_ASSIGN_OR_RETURN(there.emplace_back(), stream.Upload(input));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(
        outputs, executable.Run(there, team, worker, memory.compute, memory.stop, memory.timer));
    for (const Tensor& output : outputs) {
      Tensor& result = results.emplace_back();
      if (!output.present()) continue;
      result = Tensor::Allocate(output.dtype(), output.shape());
      CHAIRLIFT_RETURN_IF_ERROR(stream.CopyOut(result.raw(), output.raw(), output.byte_size()));
    }
    return absl::OkStatus();
  };
  const Status enqueued = enqueue();
  // Enqueued work uses tensors of this call.
  const Status ran = stream.Record()->Wait();
  CHAIRLIFT_RETURN_IF_ERROR(enqueued);
  CHAIRLIFT_RETURN_IF_ERROR(ran);
  return results;
}

}  // namespace chairlift
