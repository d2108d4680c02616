// The flags of ServerLimits, in groups of the help text.
#ifndef CHAIRLIFT_CLI_LIMIT_FLAGS_H_
#define CHAIRLIFT_CLI_LIMIT_FLAGS_H_

#include "server/limits.h"

namespace CLI {
class App;
}

namespace chairlift {

// Adds a flag for each of `*limits`, which holds the defaults and must outlive the parsing.
void AddLimitFlags(CLI::App& parser, ServerLimits* limits);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LIMIT_FLAGS_H_
