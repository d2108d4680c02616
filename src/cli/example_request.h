// A curl command that a model answers, made from its signature.
#ifndef CHAIRLIFT_CLI_EXAMPLE_REQUEST_H_
#define CHAIRLIFT_CLI_EXAMPLE_REQUEST_H_

#include <string>

#include "chairlift/engine.h"

namespace chairlift {

// One command a ready model: short ones inline, with small inputs of ones, tried first so that what
// is printed answers. Other models are named with their shapes instead.
std::string ExampleRequest(Engine& engine, const std::string& site);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_EXAMPLE_REQUEST_H_
