// What `chairlift doctor` looks at, one finding each.
#ifndef CHAIRLIFT_CLI_DOCTOR_FINDINGS_H_
#define CHAIRLIFT_CLI_DOCTOR_FINDINGS_H_

#include <string>
#include <vector>

#include "cli/model_path.h"

namespace chairlift::doctor {

enum class Level {
  kOk,
  kHint,     // works; could be better
  kProblem,  // something that was asked for does not work
};

struct Finding {
  Level level = Level::kOk;
  std::string about;     // "cores"
  std::string said;      // what was found
  std::string fix = {};  // what would change it; empty: nothing to change
};

// Cores, memory, instruction sets, measured peak rates, huge pages, clock, GPU. Measuring takes
// about a second.
std::vector<Finding> OfMachine();

// Whether 127.0.0.1:port is free, for each port that `serve` takes by default; the cache folder;
// the Python interpreter and its packages.
std::vector<Finding> OfServing();

// How the model is served and why not better; the time and memory of a request that is made up for
// it; requests a second of several at once. Loads it: seconds.
std::vector<Finding> OfModel(const ModelPath& path, bool allow_plugins);

}  // namespace chairlift::doctor

#endif  // CHAIRLIFT_CLI_DOCTOR_FINDINGS_H_
