// A task of a Python model: its requests' rows as one batch, which passes the processes of each
// stage. If that raises, each request runs alone.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_TASK_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_TASK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/programs/process/worker_group.h"
#include "engine/programs/program.h"

namespace chairlift {

// Which inputs and outputs are ragged: their rows have different lengths.
struct TensorForms {
  explicit TensorForms(const WorkerReady& ready);
  // The rows of a request in one tensor all have the same length.
  int64_t Length(const ValidatedRequest& request) const {
    return any ? request.inputs[static_cast<size_t>(input)].shape()[1] : 0;
  }

  const std::vector<bool> inputs, outputs;
  const int input;  // the first ragged input
  const bool any;
  std::vector<size_t> texts;  // inputs of kBytes
  // By output: the index of its own offsets after the outputs; −1: none.
  std::vector<int> own_offsets;
  size_t num_own = 0;
};

// Processes that a batch passes: those of a hook that runs separately (FunctionConfig), or those
// that compute.
struct FunctionStage {
  explicit FunctionStage(std::unique_ptr<WorkerGroup> workers)
      : group(std::move(workers)), forms(group->signature()) {}
  std::unique_ptr<WorkerGroup> group;
  TensorForms forms;
};

// In order. Each gets the previous one's results. Ragged rows and steps are supported only with a
// single stage.
struct FunctionStages {
  std::vector<FunctionStage> all;
  const FunctionStage& first() const { return all.front(); }
  const FunctionStage& last() const { return all.back(); }
  bool streams() const { return last().group->signature().streams; }
};

// All arguments must live until `done` has been called, on the thread of a group. `retry_alone` as
// in FunctionConfig.
void RunFunctionTask(const FunctionStages& stages, const Signature& signature, bool retry_alone,
                     TaskRun& run, Program::TaskDone done);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_TASK_H_
