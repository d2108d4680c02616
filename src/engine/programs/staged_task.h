// One task of a model in stages, whatever computes them.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGED_TASK_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGED_TASK_H_

#include <span>

#include "absl/functional/function_ref.h"
#include "engine/programs/program.h"
#include "engine/programs/staged_request.h"

namespace chairlift {

struct StagedItem {
  StagedRequest* request = nullptr;
  TaskNode* node = nullptr;
};

// Runs stage `run.cell` of `stages` for those of its requests that may start it. `compute`
// completes the requests passed to it, in the order of their rows, or fails. If several fail
// together it is called for each alone, so that none fails because of another's data.
TaskResult RunStagedTask(TaskRun& run, int stages,
                         absl::FunctionRef<Status(std::span<const StagedItem>)> compute);

// The reserved memory of a batch of these; null for a single one.
SharedStageMemory MemoryOf(std::span<const StagedItem> items);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_TASK_H_
