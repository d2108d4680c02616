// A task of a function: its requests' rows as one batch, which goes through the processes of the
// function's stages; where that raises, each request by itself.
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

// What of a function's inputs and outputs does not come as equal rows.
struct TensorForms {
  explicit TensorForms(const WorkerReady& ready);
  // Of the request's rows: as it brings them as one tensor, all have one length.
  int64_t Length(const ValidatedRequest& request) const {
    return any ? request.inputs[static_cast<size_t>(input)].shape()[1] : 0;
  }

  const std::vector<bool> inputs, outputs;
  const int input;  // the first ragged one
  const bool any;
  std::vector<size_t> texts;     // inputs of kBytes
  std::vector<int> own_offsets;  // by output: which of the offsets behind the outputs are its; −1
  size_t num_own = 0;
};

// Processes that a batch goes through: those of a hook that runs apart (FunctionConfig), or those
// that compute.
struct FunctionStage {
  explicit FunctionStage(std::unique_ptr<WorkerGroup> workers)
      : group(std::move(workers)), forms(group->signature()) {}
  std::unique_ptr<WorkerGroup> group;
  TensorForms forms;
};

// In order. Each takes what the one before gives; rows are ragged, or come in steps, only where
// there is one.
struct FunctionStages {
  std::vector<FunctionStage> all;
  const FunctionStage& first() const { return all.front(); }
  const FunctionStage& last() const { return all.back(); }
  bool streams() const { return last().group->signature().streams; }
};

// All that is passed must live until `done` has been called, which is on the thread of a group.
// `retry_alone` as FunctionConfig's.
void RunFunctionTask(const FunctionStages& stages, const Signature& signature, bool retry_alone,
                     TaskRun& run, Program::TaskDone done);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_TASK_H_
