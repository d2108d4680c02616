// Shows the progress of a model's load on a terminal.
#ifndef CHAIRLIFT_CLI_LOAD_BAR_H_
#define CHAIRLIFT_CLI_LOAD_BAR_H_

#include <functional>

#include "chairlift/engine.h"

namespace chairlift {

// For EngineOptions::on_load: one line on standard error, removed when the load ends; nothing if it
// is not a terminal.
std::function<void(const LoadProgress&)> LoadBar();

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_BAR_H_
