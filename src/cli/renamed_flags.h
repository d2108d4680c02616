// Old names of flags, which work for one version (base/renamed.h).
#ifndef CHAIRLIFT_CLI_RENAMED_FLAGS_H_
#define CHAIRLIFT_CLI_RENAMED_FLAGS_H_

#include <string>
#include <vector>

namespace chairlift {

// Gives old flags of a command line, without the program's name, their present names, and their
// values the present unit. Returns a line of warning for each.
std::vector<std::string> RenameFlags(std::vector<std::string>* arguments);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_RENAMED_FLAGS_H_
