// How far the timing of a model has come, for whoever waits for it.
#ifndef CHAIRLIFT_ENGINE_TIMING_PROGRESS_H_
#define CHAIRLIFT_ENGINE_TIMING_PROGRESS_H_

#include <functional>

namespace chairlift {

// Told now and then how much of the time is over that timing may take, from 0 to 1. May be null.
using TimingProgress = std::function<void(double done)>;

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_TIMING_PROGRESS_H_
