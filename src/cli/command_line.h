// The parser of `chairlift`: its subcommands, flags and help. main.cc runs it, reference/ generates
// documents from it.
#ifndef CHAIRLIFT_CLI_COMMAND_LINE_H_
#define CHAIRLIFT_CLI_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace chairlift {

struct CommandLine {
  CLI::App app{"", "chairlift"};
  // Each subcommand in the order of the help, with the function to run after parsing.
  std::vector<std::pair<CLI::App*, Command>> commands;
};

std::unique_ptr<CommandLine> MakeCommandLine();

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_COMMAND_LINE_H_
