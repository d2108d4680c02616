// Finds the workers' own program.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_SCRIPT_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_SCRIPT_H_

#include <filesystem>

#include "chairlift/status.h"

namespace chairlift {

// _worker.py: $CHAIRLIFT_WORKER; else beside the program or library that contains this code (as in
// the Python package), in ../share/chairlift from there (as installed), or in the source folder.
// NotFound lists the places searched.
StatusOr<std::filesystem::path> FindWorkerScript();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_SCRIPT_H_
