// The memory of one worker, kept from task to task.
#ifndef CHAIRLIFT_RUNTIME_WORKER_MEMORY_H_
#define CHAIRLIFT_RUNTIME_WORKER_MEMORY_H_

#include <memory>

#include "base/byte_budget.h"
#include "runtime/executable.h"

namespace chairlift {

// Used by one thread at a time.
struct WorkerMemory {
  Arena compute;
  Arena staging;  // gathered inputs
  // Of the running task: set once nobody waits for its result. Null: it is never stopped.
  const StopFlag* stop = nullptr;
  // All workers': of answers that are computed in parts, until they are complete. Null: unlimited.
  std::shared_ptr<ByteBudget> partial_answers;
  NodeTimer* timer = nullptr;  // of the running task; null: its nodes are not timed
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_WORKER_MEMORY_H_
