// `chairlift profile --operators`: the time of a model by operator and by node.
#ifndef CHAIRLIFT_CLI_PROFILE_OPERATORS_H_
#define CHAIRLIFT_CLI_PROFILE_OPERATORS_H_

#include <string>

#include "chairlift/engine.h"
#include "cli/inputs.h"

namespace chairlift {

struct ProfileOperatorsOptions {
  InputShapes shapes;
  double seconds = 1;          // duration of requests, one after the other
  int top = 15;                // number of nodes in the table
  std::string json, csv, svg;  // files to write; empty: none
};

// Sends requests to `model`, which is loaded, prints the tables and writes the files.
Status ProfileOperators(Engine& engine, const std::string& model,
                        const ProfileOperatorsOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_PROFILE_OPERATORS_H_
