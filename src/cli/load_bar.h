// Shows the progress of a model's load on a terminal.
#ifndef CHAIRLIFT_CLI_LOAD_BAR_H_
#define CHAIRLIFT_CLI_LOAD_BAR_H_

#include <functional>

#include "chairlift/engine.h"

namespace chairlift {

// For EngineOptions::on_load: one line on standard error, which goes when the load is over; nothing
// where that is no terminal.
std::function<void(const LoadProgress&)> LoadBar();

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_BAR_H_
