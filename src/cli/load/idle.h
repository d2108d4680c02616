// Detects when a model that was loaded in this process has settled.
#ifndef CHAIRLIFT_CLI_LOAD_IDLE_H_
#define CHAIRLIFT_CLI_LOAD_IDLE_H_

namespace chairlift {

// Returns when this process is idle, at the latest after a minute. After a load, plans of batches
// are made in the background, and that time would otherwise count as the model's.
void WaitUntilIdle();

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_IDLE_H_
