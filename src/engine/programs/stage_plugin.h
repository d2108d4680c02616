// What a user brings for a model in stages: a batching policy, and predicates of exits.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGE_PLUGIN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGE_PLUGIN_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "chairlift/stage_plugin.h"
#include "engine/programs/loading_model.h"

namespace chairlift {

// Runs a user's policy, under the lock under which its model is scheduled: it decides about the
// scheduler's state, which must not change meanwhile. So it may hold up its model, but not for
// long: once it has thrown an exception, or kSlowCalls calls in a row took longer than kSlow, it is
// not called any more, which is logged. All that waits then makes a batch as soon as it can, and
// nothing else is done.
class GuardedStagePolicy final : public StagePolicy {
 public:
  static constexpr Duration kSlow = std::chrono::milliseconds(1);
  static constexpr int kSlowCalls = 16;  // one may be another's fault: a thread loses its core

  // `model`: for the log.
  GuardedStagePolicy(std::string model, std::unique_ptr<StagePolicy> users,
                     const Clock& clock = Clock::Steady())
      : model_(std::move(model)), users_(std::move(users)), clock_(clock) {}
  void Schedule(const StageBatch& batch, MetaOperations& operations) override;
  // Why it is not called any more; null: it is. A literal. Thread-safe.
  const char* failed() const { return failed_; }

 private:
  const std::string model_;
  const std::unique_ptr<StagePolicy> users_;
  const Clock& clock_;
  int slow_calls_ = 0;  // in a row
  std::atomic<const char*> failed_{nullptr};
};

// What there is to say of it; null: nothing.
std::vector<std::string> RemarksOn(const GuardedStagePolicy* policy);

struct UsersStaging {
  std::unique_ptr<GuardedStagePolicy> policy;  // null: there is none
  // The model's, each with a threshold or a predicate.
  std::vector<StageExit> exits;
};

// From the model's settings and, where they name one, its plugin. InvalidArgument where plugins are
// not allowed, or the plugin is wrong or has not what is needed.
StatusOr<UsersStaging> LoadUsersStaging(const LoadingModel& model,
                                        std::span<const std::string> stages);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGE_PLUGIN_H_
