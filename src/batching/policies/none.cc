#include "batching/policies/none.h"

#include "batching/policies/window.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeNoneScheduler(const PolicyOptions& /*options*/) {
  return MakeWindowScheduler(PolicyOptions{});
}

}  // namespace chairlift
