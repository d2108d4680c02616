// The subcommands of `chairlift`. Each adds its flags to the parser and returns the function to
// run.
#ifndef CHAIRLIFT_CLI_COMMANDS_H_
#define CHAIRLIFT_CLI_COMMANDS_H_

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace chairlift {

// Runs the subcommand after its flags have been parsed. An error ends the program with its message
// and exit code 1.
using Command = std::function<Status()>;

Command AddServe(CLI::App& parser);
Command AddRun(CLI::App& parser);
Command AddInspect(CLI::App& parser);
Command AddProfile(CLI::App& parser);
Command AddBench(CLI::App& parser);
Command AddSimulate(CLI::App& parser);
Command AddDoctor(CLI::App& parser);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_COMMANDS_H_
