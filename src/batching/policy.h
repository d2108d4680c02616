// Policies by name.
#ifndef CHAIRLIFT_BATCHING_POLICY_H_
#define CHAIRLIFT_BATCHING_POLICY_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batching/scheduler.h"
#include "chairlift/status.h"

namespace chairlift {

// What a policy may be told. A policy uses what it has a use for.
struct PolicyOptions {
  // Rows in one task. A node with more rows of its own than that makes a task by itself.
  int max_batch_size = 1;
  // How long a ready node may be held back for company while a worker has room.
  Duration queue_delay{0};
  // Rows that a task should have where that is possible; ascending or not, each in
  // [1, max_batch_size].
  std::vector<int> preferred_batch_sizes = {};
};

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line, for help texts
  StatusOr<std::unique_ptr<Scheduler>> (*make)(const PolicyOptions& options);
};

std::span<const PolicyInfo> KnownPolicies();

// InvalidArgument where no policy has that name (the message lists them) or an option is out of
// range.
StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(std::string_view policy,
                                                   const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICY_H_
