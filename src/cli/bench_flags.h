// The flags of `chairlift bench`.
#ifndef CHAIRLIFT_CLI_BENCH_FLAGS_H_
#define CHAIRLIFT_CLI_BENCH_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/bench_tokens.h"
#include "cli/inputs.h"
#include "cli/load/schedule.h"

namespace chairlift {

struct BenchFlags {
  std::string model;
  std::string url;
  int connections = 64;
  ScheduleOptions schedule;
  std::vector<double> rates;
  TokenBenchOptions tokens;
  int requests = 0;  // per load, at least; 0: unset
  bool peak = false;
  bool tune_delay = false;
  double objective_ms = 200;
  std::string gaps;
  std::string lengths;
  std::vector<std::string> shapes;
  std::vector<std::string> inputs;
  bool rows_in_turn = false;
  InputShapes input_shapes;
  std::optional<int64_t> length;
  ModelConfig config;
  EngineOptions engine;
  double warmup_seconds = 1;
  double timeout_seconds = 60;
  std::string json;
  std::string trace;
  bool trace_nodes = false;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_BENCH_FLAGS_H_
