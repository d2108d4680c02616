// One task on one worker: requests' rows into one input, the model run, its output back to each.
#ifndef CHAIRLIFT_ENGINE_BATCH_H_
#define CHAIRLIFT_ENGINE_BATCH_H_

#include <span>
#include <vector>

#include "base/clock.h"
#include "device/cpu/team.h"
#include "engine/request.h"
#include "runtime/executable.h"

namespace chairlift {

// The memory of one worker, kept from batch to batch.
struct WorkerMemory {
  Arena compute;
  Arena staging;  // gathered inputs
};

struct BatchResult {
  // One for each request, in order: the wanted outputs, or why there are none.
  std::vector<StatusOr<std::vector<NamedTensor>>> outputs;
  Duration compute_input{0};
  Duration compute_infer{0};
  Duration compute_output{0};
};

// Runs requests of one model and equal ShapeKey together; of a model that runs on packed tokens,
// any requests. Otherwise a single request's tensors go in and out without being copied. Where
// several fail together each is run again alone, so that nobody fails for another's data.
BatchResult RunBatch(Model& model, std::span<const Request* const> requests, Team& team, int worker,
                     WorkerMemory& memory);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_BATCH_H_
