// Runs a policy in virtual time: predicts its behaviour on machines of known cost with any number
// of workers.
#ifndef CHAIRLIFT_BATCHING_SIMULATOR_H_
#define CHAIRLIFT_BATCHING_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "batching/scheduler.h"

namespace chairlift {

struct Workload {
  struct Arrival {
    Duration at{0};  // after the start
    int32_t graph = 0;
  };
  std::vector<CellGraph> graphs;  // the distinct requests
  // For requests that generate, by graph: the number of answer tokens after a prompt, which is the
  // graph's one node. The first token comes with the prompt's last row; each further one with a
  // node of one row by which the request grows. Empty: no request grows.
  std::vector<int32_t> answers = {};
  std::vector<Arrival> arrivals;  // in order of time
  // Not 0: a closed loop of this many concurrent requests. When one leaves, the next arrives; `at`
  // is ignored.
  int64_t clients = 0;
};

struct SimulatedRequest {
  Duration arrived{0};
  Duration started{0};  // when the task with its first node started
  Duration left{0};
  Duration first_token{0};  // for a request that generates
};

// A token of an answer, except the first.
struct SimulatedToken {
  Duration at{0};     // when it was produced
  Duration since{0};  // time since the previous token
};

struct SimulationResult {
  std::vector<SimulatedRequest> requests;  // in order of arrival
  std::vector<SimulatedToken> tokens;
  int64_t tasks = 0;
  int64_t steps = 0;  // of all tasks
  int64_t nodes = 0;
  // If batches are padded to a length: counted in rows times length.
  int64_t rows = 0;
  int64_t padding_rows = 0;
  int64_t set_back = 0;  // number of preemptions (NodeRef)
  Duration busy{0};      // of all workers together
  Duration end{0};       // when the last request left
};

// Runs the whole workload to its end. A worker runs its tasks one after the other. Each takes as
// long as its rows cost, including padding (TaskCost). A worker has at most `ahead` tasks, even if
// its policy would give more; 1 corresponds to the engine's workers, which ask when they are idle.
// `scheduler` must be new.
inline constexpr int kTasksAhead = 64;
SimulationResult Simulate(Scheduler& scheduler, const Workload& workload, const CostModel& costs,
                          int workers, int ahead = kTasksAhead);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_SIMULATOR_H_
