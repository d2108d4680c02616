// Runs `chairlift bench` after its flags have been read.
#ifndef CHAIRLIFT_CLI_BENCH_RUN_H_
#define CHAIRLIFT_CLI_BENCH_RUN_H_

#include "base/status.h"
#include "cli/bench_flags.h"

namespace chairlift {

// Loads the model or connects to the server, puts the loads on it or finds the highest, and prints
// and writes the results.
Status RunBench(BenchFlags flags);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_BENCH_RUN_H_
