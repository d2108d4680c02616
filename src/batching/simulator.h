// Runs a policy in virtual time: what would happen, on machines of known cost and any number of
// workers, without one of them being there.
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
  std::vector<CellGraph> graphs;  // the different requests there are
  // By graph, of requests that generate: tokens of the answer behind a prompt, which is the graph's
  // one node. The first comes with the prompt's last row, each further one with a node of one row
  // that the request grows by. Empty: no request grows.
  std::vector<int32_t> answers = {};
  std::vector<Arrival> arrivals;  // in order of time
  // Not 0: the load is closed. So many requests are under way; as one leaves, the next arrives, and
  // `at` says nothing.
  int64_t clients = 0;
};

struct SimulatedRequest {
  Duration arrived{0};
  Duration started{0};  // when the task with its first node began
  Duration left{0};
  Duration first_token{0};  // when it came, of one that generates
};

// Of an answer, but its first.
struct SimulatedToken {
  Duration at{0};     // when it came
  Duration since{0};  // the one before
};

struct SimulationResult {
  std::vector<SimulatedRequest> requests;  // in order of arrival
  std::vector<SimulatedToken> tokens;
  int64_t tasks = 0;
  int64_t steps = 0;  // of all tasks
  int64_t nodes = 0;
  // Where batches are padded to a length, of rows times lengths.
  int64_t rows = 0;
  int64_t padding_rows = 0;
  int64_t set_back = 0;  // times that a request was (NodeRef)
  Duration busy{0};      // of all workers together
  Duration end{0};       // when the last request left
};

// Runs all of the workload to its end. A worker runs its tasks one after the other, each for as
// long as its rows, padding included, cost (TaskCost), and has at most `ahead` of them at once,
// where its policy would give more: 1, as the engine's workers, which ask when they are idle.
// `scheduler` must be new.
inline constexpr int kTasksAhead = 64;
SimulationResult Simulate(Scheduler& scheduler, const Workload& workload, const CostModel& costs,
                          int workers, int ahead = kTasksAhead);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_SIMULATOR_H_
