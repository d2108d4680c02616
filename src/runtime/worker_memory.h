// The memory of one worker, kept between tasks.
#ifndef CHAIRLIFT_RUNTIME_WORKER_MEMORY_H_
#define CHAIRLIFT_RUNTIME_WORKER_MEMORY_H_

#include <memory>
#include <span>
#include <vector>

#include "base/byte_budget.h"
#include "device/device.h"
#include "runtime/executable.h"

namespace chairlift {

// Used by one thread at a time.
struct WorkerMemory {
  explicit WorkerMemory(Stream& stream = CpuStream()) : compute(stream), staging(stream) {}
  // The stream that the worker computes on.
  Stream& stream() const { return compute.stream(); }

  Arena compute;
  Arena staging;  // gathered inputs
  // Host memory in which requests are joined.
  Arena& joined() { return stream().device().is_host() ? staging : on_host_; }
  // Between tasks: Arena::ReleaseIdle() of all.
  void ReleaseIdle() {
    for (Arena* arena : {&compute, &staging, &on_host_}) arena->ReleaseIdle();
  }
  // For the running task: set when its result is no longer needed. Null: it is never stopped.
  const StopFlag* stop = nullptr;
  // Shared by all workers: bytes of answers that are computed in parts, until they are complete.
  // Null: unlimited.
  std::shared_ptr<ByteBudget> partial_answers;
  NodeTimer* timer = nullptr;  // for the running task; null: nodes are not timed

 private:
  Arena on_host_;
};

// Runs the executable on host tensors and returns host tensors. If it runs on another device,
// copies them there and back and waits for the device. Otherwise like Executable::Run().
StatusOr<std::vector<Tensor>> RunFromHost(Executable& executable, std::span<const Tensor> inputs,
                                          Team& team, int worker, WorkerMemory& memory);

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_WORKER_MEMORY_H_
