// Where the workers' own program lies.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_SCRIPT_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_SCRIPT_H_

#include <filesystem>

#include "chairlift/status.h"

namespace chairlift {

// _worker.py: $CHAIRLIFT_WORKER; else beside the program or library that this code is part of (as
// in the Python package), in ../share/chairlift from there (as installed), or in the source folder
// that it was built from. NotFound names where it was looked for.
StatusOr<std::filesystem::path> FindWorkerScript();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_SCRIPT_H_
