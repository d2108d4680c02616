#include "batching/policies/staged.h"

#include "base/status.h"
#include "batching/policies/stages/staged_scheduler.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeStagedScheduler(const PolicyOptions& options,
                                                         const StagedOptions& staged) {
  if (staged.buffer_pairs < 1) {
    return InvalidArgument("buffer_pairs is {}; it must be at least 1 (2 to run as a pipeline)",
                           staged.buffer_pairs);
  }
  if (staged.join_window < Duration(0)) {
    return InvalidArgument("join_window_us is {}; it must be at least 0",
                           staged.join_window.count() / 1000);
  }
  if (staged.split && options.costs == nullptr) {
    return InvalidArgument(
        "splitting batches by cost needs the costs of the stages, which are missing");
  }
  return std::make_unique<StagedScheduler>(options, staged);
}

}  // namespace chairlift
