// What a user brings for a model in stages: a batching policy, and predicates of exits.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGE_PLUGIN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGE_PLUGIN_H_

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chairlift/stage_plugin.h"
#include "engine/programs/loading_model.h"

namespace chairlift {

// Runs a user's policy. Once that has thrown an exception, which is logged, all that waits makes a
// batch as soon as it can, and nothing else is done.
class GuardedStagePolicy final : public StagePolicy {
 public:
  // `model`: for the log.
  GuardedStagePolicy(std::string model, std::unique_ptr<StagePolicy> users)
      : model_(std::move(model)), users_(std::move(users)) {}
  void Schedule(const StageBatch& batch, MetaOperations& operations) override;
  // Thread-safe.
  bool failed() const { return failed_; }

 private:
  const std::string model_;
  const std::unique_ptr<StagePolicy> users_;
  std::atomic<bool> failed_{false};
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
