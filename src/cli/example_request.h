// Makes a curl command that a model answers, from its signature.
#ifndef CHAIRLIFT_CLI_EXAMPLE_REQUEST_H_
#define CHAIRLIFT_CLI_EXAMPLE_REQUEST_H_

#include <string>

#include "chairlift/engine.h"

namespace chairlift {

// One command per ready model. Short ones are printed inline, with small inputs of ones, after they
// were tried. For other models, prints names and shapes instead.
std::string ExampleRequest(Engine& engine, const std::string& site);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_EXAMPLE_REQUEST_H_
