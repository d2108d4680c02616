// The checks of `chairlift doctor`, one finding each.
#ifndef CHAIRLIFT_CLI_DOCTOR_FINDINGS_H_
#define CHAIRLIFT_CLI_DOCTOR_FINDINGS_H_

#include <string>
#include <vector>

#include "cli/model_path.h"

namespace chairlift::doctor {

enum class Level {
  kOk,
  kInfo,     // neither good nor bad
  kHint,     // works, but could be better
  kProblem,  // something that was requested does not work
};

struct Finding {
  Level level = Level::kOk;
  std::string about;     // "cores"
  std::string said;      // the result
  std::string fix = {};  // how to change it; empty: nothing to change
};

// Cores, memory, instruction sets, measured peak rates, huge pages, clock, GPU. Measuring takes
// about a second.
std::vector<Finding> OfMachine();

// Whether 127.0.0.1:port is free, for each port that `serve` takes by default; the cache folder;
// the Python interpreter and its packages.
std::vector<Finding> OfServing();

// How the model is served and why not better; time and memory of a generated request; throughput
// with several concurrent requests. Loads the model: takes seconds.
std::vector<Finding> OfModel(const ModelPath& path, bool allow_plugins);

}  // namespace chairlift::doctor

#endif  // CHAIRLIFT_CLI_DOCTOR_FINDINGS_H_
