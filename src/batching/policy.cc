#include "batching/policy.h"

#include "base/closest.h"
#include "base/status.h"
#include "batching/policies/baselines/baselines.h"
#include "batching/policies/cellular.h"
#include "batching/policies/continuous.h"
#include "batching/policies/length_dp.h"
#include "batching/policies/packed.h"
#include "batching/policies/staged.h"
#include "batching/policies/window.h"

namespace chairlift {
namespace {

Status CheckRanges(const PolicyOptions& options) {
  const auto us = [](Duration duration) { return duration.count() / 1000; };
  const struct {
    const char* name;
    int64_t value;
    int64_t least;
  } ranges[] = {{"max_batch_size", options.max_batch_size, 1},
                {"queue_delay_us", us(options.queue_delay), 0},
                {"latency_objective_us", us(options.latency_objective), 0},
                {"workers", options.workers, 1},
                {"max_tasks_to_submit", options.max_tasks_to_submit, 1},
                {"time_slice_us", us(options.time_slice), 0},
                {"buffer_pairs", options.buffer_pairs, 1},
                {"bucket_width", options.bucket_width, 1}};
  for (const auto& [name, value, least] : ranges) {
    if (value < least) {
      return InvalidArgument("{} is {}; it must be at least {}", name, value, least);
    }
  }
  if (options.state_capacity < 0) {
    return InvalidArgument("state_capacity is {}; it must be at least 0", options.state_capacity);
  }
  for (size_t type = 0; type < options.cell_types.size(); ++type) {
    const CellTypeOptions& given = options.cell_types[type];
    const int max = given.max_batch_size > 0 ? given.max_batch_size : options.max_batch_size;
    if (given.max_batch_size < 0 || given.min_batch_size < 0 || given.min_batch_size > max) {
      return InvalidArgument(
          "batch sizes of cell type {} are {} to {}; they must be at least 1 (0: automatic), the "
          "smaller one first",
          type, given.min_batch_size, max);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const PolicyInfo> KnownPolicies() {
  static constexpr PolicyInfo kPolicies[] = {
      {"none", "each request runs alone, in order of arrival", GraphForm::kAny, MakeNoneScheduler},
      {"window", "requests of equal shape form a batch when it is full or the queue delay is over",
       GraphForm::kAny, MakeWindowScheduler},
      {"cellular", "requests join and leave the batch at every step of a recurrent model",
       GraphForm::kCells, MakeCellularScheduler},
      {"staged", "requests join a batch, and batches are split, between stages of a model",
       GraphForm::kStages,
       [](const PolicyOptions& options) {
         return MakeStagedScheduler(options, {.split = options.costs != nullptr,
                                              .stretch = true,
                                              .join_window = options.join_window,
                                              .buffer_pairs = options.buffer_pairs});
       }},
      {"bucketed", "requests of similar length are padded and run to the end together",
       GraphForm::kCells, MakeBucketedScheduler},
      {"graph_merge",
       "the graphs of requests are merged level by level and run to the end together",
       GraphForm::kCells, MakeGraphMergeScheduler},
      {"ideal", "requests of equal structure run to the end together, node by node",
       GraphForm::kCells, MakeIdealScheduler},
      {"length_dp", "requests are divided into padded batches of the lowest total cost",
       GraphForm::kPadded, MakeLengthDpScheduler},
      {"naive", "all waiting requests form one batch, padded to the longest", GraphForm::kPadded,
       MakeNaiveScheduler},
      {"packed", "requests of any length share a batch without padding, limited by its tokens",
       GraphForm::kRagged, MakePackedScheduler},
      {"continuous", "requests join and leave at every generated token; prompts run in pieces",
       GraphForm::kGenerated, MakeContinuousScheduler},
      {"whole_prompts", "as continuous, but each prompt runs in one piece", GraphForm::kGenerated,
       MakeWholePromptsScheduler},
      {"leave_only", "requests leave the batch when they end; no request joins it",
       GraphForm::kGenerated, MakeLeaveOnlyScheduler},
      {"static", "a padded batch generates until its last request ends", GraphForm::kGenerated,
       MakeStaticScheduler},
  };
  return kPolicies;
}

StatusOr<const PolicyInfo*> FindPolicy(std::string_view name) {
  for (const PolicyInfo& info : KnownPolicies()) {
    if (info.name == name) return &info;
  }
  return InvalidArgument("there is no batching policy '{}'{}", name,
                         KnownNames(name, NamesOf(KnownPolicies(), &PolicyInfo::name)));
}

StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(std::string_view policy,
                                                   const PolicyOptions& options) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckRanges(options));
  CHAIRLIFT_ASSIGN_OR_RETURN(const PolicyInfo* info, FindPolicy(policy));
  return info->make(options);
}

}  // namespace chairlift
