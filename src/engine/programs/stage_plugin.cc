#include "engine/programs/stage_plugin.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/status.h"
#include "engine/programs/cells/cell_manifest.h"
#include "engine/programs/user_plugin.h"

namespace chairlift {
namespace {

StatusOr<const StagePlugin*> OpenStagePlugin(const LoadingModel& model) {
  const std::string& library = model.config.stage_plugin.library;
  if (!model.load.allow_plugins) {
    return InvalidArgument(
        "the model's plugin '{}' is code that would run in this process, and plugins are not "
        "allowed; --allow-plugins allows them",
        library);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::filesystem::path file,
                             FileInside(FolderOfModel(model.source.path.parent_path()), library));
  return OpenUserPlugin<StagePlugin>(file, "chairlift_stage_plugin", "CHAIRLIFT_STAGE_PLUGIN");
}

}  // namespace

void GuardedStagePolicy::Schedule(const StageBatch& batch, MetaOperations& operations) {
  if (failed_ == nullptr) {
    const TimePoint start = clock_.Now();
    const Status ran = GuardUserCode([&] {
      users_->Schedule(batch, operations);
      return absl::OkStatus();
    });
    slow_calls_ = clock_.Now() - start > kSlow ? slow_calls_ + 1 : 0;
    if (ran.ok() && slow_calls_ < kSlowCalls) return;
    failed_ = ran.ok() ? "took more than 1 ms 16 times in a row" : "threw an exception";
    spdlog::error("model '{}': the stage policy is no longer called: it {}{}", model_,
                  failed_.load(), ran.ok() ? "" : ": " + Message(ran));
    if (ran.ok()) return;
  }
  if (batch.stage == 0) operations.New(static_cast<int>(batch.rows.size()));
}

std::vector<std::string> RemarksOn(const GuardedStagePolicy* policy) {
  if (policy == nullptr || policy->failed() == nullptr) return {};
  return {fmt::format("its stage policy {} and is no longer called", policy->failed())};
}

StatusOr<UsersStaging> LoadUsersStaging(const LoadingModel& model,
                                        std::span<const std::string> stages) {
  const ModelConfig& config = model.config;
  UsersStaging staging;
  staging.exits = config.exits;
  const StagePlugin* plugin = nullptr;
  const std::string& library = config.stage_plugin.library;
  const StagePlugin::Model about{.stages = stages, .options = config.stage_plugin.options};
  if (!library.empty()) {
    const StatusOr<const StagePlugin*> opened = OpenStagePlugin(model);
    if (!opened.ok()) return Annotate(opened.status(), fmt::format("stage_plugin: {}", library));
    plugin = *opened;
  }
  for (StageExit& exit : staging.exits) {
    if (exit.at_least || exit.predicate != nullptr) continue;
    if (plugin == nullptr || plugin->make_exit == nullptr) {
      return InvalidArgument(
          "exits: exit after '{}' has neither at_least nor a predicate (of a stage_plugin)",
          exit.output);
    }
    StatusOr<ExitPredicate> made =
        GuardUserCode([&] { return plugin->make_exit(about, exit.output); });
    if (!made.ok()) return Annotate(made.status(), fmt::format("stage_plugin: {}", library));
    if (*made == nullptr) {
      return InvalidArgument("stage_plugin: {}: it made no predicate for '{}'", library,
                             exit.output);
    }
    exit.predicate = *std::move(made);
  }
  std::unique_ptr<StagePolicy> policy;
  if (config.stage_policy != nullptr) {
    policy = config.stage_policy();
    if (policy == nullptr) return InvalidArgument("stage_policy made no policy");
  } else if (plugin != nullptr && plugin->make_policy != nullptr) {
    auto made = GuardUserCode([&] { return plugin->make_policy(about); });
    if (!made.ok()) return Annotate(made.status(), fmt::format("stage_plugin: {}", library));
    if (*made == nullptr) return InvalidArgument("stage_plugin: {}: it made no policy", library);
    policy = *std::move(made);
  }
  if (policy != nullptr) {
    staging.policy = std::make_unique<GuardedStagePolicy>(model.name, std::move(policy));
  }
  return staging;
}

}  // namespace chairlift
