// Flags of `chairlift serve` from environment variables and from a file.
#ifndef CHAIRLIFT_CLI_FLAG_SOURCES_H_
#define CHAIRLIFT_CLI_FLAG_SOURCES_H_

#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace chairlift {

// The variables of an environment, by name.
using Environment = std::map<std::string, std::string>;
Environment OwnEnvironment();

struct FlagSources {
  std::map<std::string, std::string> of;  // by flag: "CHAIRLIFT_HTTP_PORT", "server.yaml"
  std::vector<std::string> warnings;

  // " (--http-port is from server.yaml)" if the message names such a flag, otherwise empty.
  std::string NamedIn(const std::string& message) const;
};

// Adds flags to the arguments of `serve`; those of other commands stay as they are. The variable of
// --http-port is CHAIRLIFT_HTTP_PORT. The file is that of --config or CHAIRLIFT_CONFIG, a YAML map
// of flags without dashes: `http-port: 8000`. A flag on the command line wins over a variable, and
// a variable over the file. `serve` is the parser of the command.
//
// InvalidArgument if the file is not as described, or a variable of a flag without a value is
// neither true nor false. NotFound if the file cannot be read.
StatusOr<FlagSources> AddFlagsFromOutside(const CLI::App& serve, const Environment& environment,
                                          std::vector<std::string>* arguments);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_FLAG_SOURCES_H_
