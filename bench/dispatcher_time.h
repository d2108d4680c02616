// The cost of a node in the whole dispatcher if computing it takes no time.
#ifndef CHAIRLIFT_BENCH_DISPATCHER_TIME_H_
#define CHAIRLIFT_BENCH_DISPATCHER_TIME_H_

#include <cstdint>
#include <functional>
#include <random>

#include "batching/cell_graph.h"
#include "batching/policy.h"

namespace chairlift {

struct DispatcherLoad {
  const char* policy;
  PolicyOptions options;
  int workers;
  int models;
  int concurrent;  // requests of each model in the system
  // The types of its nodes are cells.
  std::function<void(CellGraph&, std::mt19937&)> build;
};

// CPU time of the process per node, in nanoseconds. Requests are made and submitted, their tasks
// formed, given to the workers' threads and completed, and their responses delivered to callbacks
// that submit the next requests.
double DispatcherNsPerNode(const DispatcherLoad& load, int64_t nodes);

}  // namespace chairlift

#endif  // CHAIRLIFT_BENCH_DISPATCHER_TIME_H_
