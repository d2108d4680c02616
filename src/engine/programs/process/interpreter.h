// Which Python runs the worker processes.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_INTERPRETER_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_INTERPRETER_H_

#include <filesystem>
#include <string>
#include <vector>

#include "chairlift/status.h"
#include "engine/programs/process/function_config.h"

namespace chairlift {

// Where an interpreter may be, in the order in which they are tried.
struct InterpreterPlace {
  std::string python;  // a path, or a name that PATH leads to
  std::string where;   // in words
};

// The places for a function whose file is `file`. Virtual environments (`.venv`, `venv`) are code:
// one in a folder of the function's data (`data_folders`) is a place only if `runs_their_code`;
// and the folder must be the user's, root's or that of the program's owner, not writable for all.
std::vector<InterpreterPlace> InterpreterPlaces(const FunctionConfig& function,
                                                const std::filesystem::path& file,
                                                bool runs_their_code);

struct Interpreter {
  std::string python;      // a path, or a name that PATH leads to
  std::string where;       // in words
  std::string lacks = {};  // packages, and how to install them; empty: none
};

// The interpreter for the function: the one that it or CHAIRLIFT_PYTHON names; else the first of
// the places that has its packages and what its file imports, or the one that lacks the fewest.
// NotFound if there is none.
StatusOr<Interpreter> ChooseInterpreter(const FunctionConfig& function,
                                        const std::filesystem::path& file, bool runs_their_code);
// Its path. Logs which was taken and what it lacks, once.
StatusOr<std::string> FindInterpreter(const FunctionConfig& function,
                                      const std::filesystem::path& file, bool runs_their_code);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_INTERPRETER_H_
