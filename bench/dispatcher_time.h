// What a node takes through the whole dispatcher, where computing it takes nothing.
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

// CPU time of the process, in nanoseconds: requests are made and submitted, their tasks formed,
// given to the workers' threads, completed, and their responses delivered to callbacks that submit
// the next.
double DispatcherNsPerNode(const DispatcherLoad& load, int64_t nodes);

}  // namespace chairlift

#endif  // CHAIRLIFT_BENCH_DISPATCHER_TIME_H_
