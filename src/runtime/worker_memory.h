// The memory of one worker, kept from task to task.
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
  // On which it computes.
  Stream& stream() const { return compute.stream(); }

  Arena compute;
  Arena staging;  // gathered inputs
  // Of the host: what requests are joined in.
  Arena& joined() { return stream().device().is_host() ? staging : on_host_; }
  // Between tasks: Arena::ReleaseIdle() of all.
  void ReleaseIdle() {
    for (Arena* arena : {&compute, &staging, &on_host_}) arena->ReleaseIdle();
  }
  // Of the running task: set once nobody waits for its result. Null: it is never stopped.
  const StopFlag* stop = nullptr;
  // All workers': of answers that are computed in parts, until they are complete. Null: unlimited.
  std::shared_ptr<ByteBudget> partial_answers;
  NodeTimer* timer = nullptr;  // of the running task; null: its nodes are not timed

 private:
  Arena on_host_;
};

// Runs the executable on tensors of the host, and returns such tensors. Where it runs on another
// device they are copied there and back, and the device is waited for. Otherwise as
// Executable::Run().
StatusOr<std::vector<Tensor>> RunFromHost(Executable& executable, std::span<const Tensor> inputs,
                                          Team& team, int worker, WorkerMemory& memory);

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_WORKER_MEMORY_H_
