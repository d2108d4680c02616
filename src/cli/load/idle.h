// When a model that was loaded in this process has settled.
#ifndef CHAIRLIFT_CLI_LOAD_IDLE_H_
#define CHAIRLIFT_CLI_LOAD_IDLE_H_

namespace chairlift {

// Returns once this process does nothing any more, after a minute at the latest. After a model is
// loaded, plans of its batches are made in the background: the machine's time that they take would
// count as the model's.
void WaitUntilIdle();

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_IDLE_H_
