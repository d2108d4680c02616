#include "batching/policy.h"

#include "base/status.h"
#include "batching/policies/bucketed.h"
#include "batching/policies/cellular.h"
#include "batching/policies/graph_merge.h"
#include "batching/policies/ideal.h"
#include "batching/policies/length_dp.h"
#include "batching/policies/naive.h"
#include "batching/policies/none.h"
#include "batching/policies/tokens.h"
#include "batching/policies/window.h"

namespace chairlift {

std::span<const PolicyInfo> KnownPolicies() {
  static constexpr PolicyInfo kPolicies[] = {
      {"none", "every request runs alone, in order of arrival", GraphForm::kAny, MakeNoneScheduler},
      {"window", "requests of equal shape share a batch, formed by size or by delay",
       GraphForm::kAny, MakeWindowScheduler},
      {"cellular", "requests join and leave at every cell of a recurrent model", GraphForm::kCells,
       MakeCellularScheduler},
      {"bucketed", "requests of similar length are padded to one and run to the end together",
       GraphForm::kCells, MakeBucketedScheduler},
      {"graph_merge", "graphs of requests are merged level by level and run to the end together",
       GraphForm::kCells, MakeGraphMergeScheduler},
      {"ideal", "requests of equal structure run node by node to the end together",
       GraphForm::kCells, MakeIdealScheduler},
      {"length_dp", "requests of varying length are cut into the padded batches that cost least",
       GraphForm::kPadded, MakeLengthDpScheduler},
      {"naive", "all that waits shares a batch, padded to the longest", GraphForm::kPadded,
       MakeNaiveScheduler},
      {"tokens", "requests of any length share a ragged batch, formed by its tokens",
       GraphForm::kRagged, MakeTokensScheduler},
  };
  return kPolicies;
}

StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(std::string_view policy,
                                                   const PolicyOptions& options) {
  std::string names;
  for (const PolicyInfo& info : KnownPolicies()) {
    if (info.name == policy) return info.make(options);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  }
  return InvalidArgument("there is no batching policy '{}'; the policies are: {}", policy, names);
}

}  // namespace chairlift
