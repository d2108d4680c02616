// User-defined parts of a model in stages: a batching policy, and predicates of exits.
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

// Runs a user's policy under the lock that its model is scheduled under, because the scheduler's
// state must not change while it decides. So it may delay its model, but not for long. If it throws
// an exception, or kSlowCalls consecutive calls take longer than kSlow, it is not called again,
// which is logged. Then all waiting requests form a batch as soon as possible, without stretch or
// split.
class GuardedStagePolicy final : public StagePolicy {
 public:
  static constexpr Duration kSlow = std::chrono::milliseconds(1);
  // A single slow call may have another cause: a thread loses its core.
  static constexpr int kSlowCalls = 16;

  // `model`: for the log.
  GuardedStagePolicy(std::string model, std::unique_ptr<StagePolicy> users,
                     const Clock& clock = Clock::Steady())
      : model_(std::move(model)), users_(std::move(users)), clock_(clock) {}
  void Schedule(const StageBatch& batch, MetaOperations& operations) override;
  // Why it is no longer called, as a literal; null: it is called. Thread-safe.
  const char* failed() const { return failed_; }

 private:
  const std::string model_;
  const std::unique_ptr<StagePolicy> users_;
  const Clock& clock_;
  int slow_calls_ = 0;  // consecutive
  std::atomic<const char*> failed_{nullptr};
};

// Remarks about it; empty for null.
std::vector<std::string> RemarksOn(const GuardedStagePolicy* policy);

struct UsersStaging {
  std::unique_ptr<GuardedStagePolicy> policy;  // null: there is none
  // The model's exits, each with a threshold or a predicate.
  std::vector<StageExit> exits;
};

// From the model's settings and their plugin, if any. InvalidArgument if plugins are not allowed,
// or the plugin is invalid or lacks something that is needed.
StatusOr<UsersStaging> LoadUsersStaging(const LoadingModel& model,
                                        std::span<const std::string> stages);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGE_PLUGIN_H_
