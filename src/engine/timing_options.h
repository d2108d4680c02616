// How models are timed, and how far that has come, for whoever waits for it.
#ifndef CHAIRLIFT_ENGINE_TIMING_OPTIONS_H_
#define CHAIRLIFT_ENGINE_TIMING_OPTIONS_H_

#include <chrono>
#include <functional>

#include "base/clock.h"

namespace chairlift {

// Told now and then how much of the time is over that timing may take, from 0 to 1. May be null.
using TimingProgress = std::function<void(double done)>;

// How often something is timed: until both are reached.
struct TimingEffort {
  int rounds = 5;
  Duration each = std::chrono::milliseconds(3);
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_TIMING_OPTIONS_H_
