// Which Python runs the worker processes.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_INTERPRETER_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_INTERPRETER_H_

#include <filesystem>
#include <string>
#include <vector>

#include "chairlift/status.h"
#include "engine/programs/process/function_config.h"

namespace chairlift {

// Where an interpreter may be, in the order of the search.
struct InterpreterPlace {
  std::string python;  // a path, or a name in PATH
  std::string where;   // description
};

// The places for a Python model in `file`. Virtual environments (`.venv`, `venv`) are code. One in
// a data folder of the model (`data_folders`) is included only if `runs_their_code`. Its folder
// must belong to the user, root or the program's owner, and must not be writable by everyone.
std::vector<InterpreterPlace> InterpreterPlaces(const FunctionConfig& function,
                                                const std::filesystem::path& file,
                                                bool runs_their_code);

struct Interpreter {
  std::string python;      // a path, or a name in PATH
  std::string where;       // description
  std::string lacks = {};  // missing packages, and how to install them; empty: none
};

// The interpreter for a Python model: the one in its settings or in CHAIRLIFT_PYTHON. Otherwise the
// first place that has its packages and what its file imports, or else the one that lacks the
// fewest. NotFound if there is none.
StatusOr<Interpreter> ChooseInterpreter(const FunctionConfig& function,
                                        const std::filesystem::path& file, bool runs_their_code);
// For `doctor`: also runs one that the settings or CHAIRLIFT_PYTHON name, which is not tried before
// a model needs it. NotFound if it cannot be run.
StatusOr<Interpreter> TryInterpreter(const FunctionConfig& function,
                                     const std::filesystem::path& file, bool runs_their_code);
// Its path. Logs the choice and missing packages once.
StatusOr<std::string> FindInterpreter(const FunctionConfig& function,
                                      const std::filesystem::path& file, bool runs_their_code);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_INTERPRETER_H_
