// Policies by name.
#ifndef CHAIRLIFT_BATCHING_POLICY_H_
#define CHAIRLIFT_BATCHING_POLICY_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batching/scheduler.h"
#include "batching/team_costs.h"
#include "chairlift/stage_policy.h"
#include "chairlift/status.h"

namespace chairlift {

// Options of one cell type. Zero and absent: the policy chooses.
struct CellTypeOptions {
  int max_batch_size = 0;   // from the costs, up to PolicyOptions::max_batch_size
  int min_batch_size = 0;   // from the costs; 1 where there are none
  int most_batch_size = 0;  // where many wait; max_batch_size, or from the costs if that is
  // Types of higher priority go first. Absent: the type's phase, one later than the phases of the
  // types that its first node reads from (decoder over encoder, internal over leaf).
  std::optional<int> priority = {};
};

// Options of all policies. Each uses those that concern it.
struct PolicyOptions {
  // Rows in one task. A node with more rows of its own than that makes a task by itself. For the
  // policies that batch whole graphs: requests in a batch.
  int max_batch_size = 1;
  // How long a ready node may be held back for company while a worker has room.
  Duration queue_delay{0};
  // Rows that a task should have where that is possible; ascending or not, each in
  // [1, max_batch_size].
  std::vector<int> preferred_batch_sizes = {};

  // What an answer may take from arrival, as a lazy policy is to see to it: where half of that is
  // about to be spent, nothing is held back. 0: unset.
  Duration latency_objective{0};
  // Workers that ask for tasks: for policies that share out among them what waits, or have them run
  // a task together.
  int workers = 1;
  const CostModel* costs = nullptr;  // must outlive the scheduler
  // By cell type; types beyond have the defaults.
  std::vector<CellTypeOptions> cell_types = {};

  // For `tokens`: when tasks are for all workers together. Null: never. Must outlive the scheduler.
  const TeamCosts* team_costs = nullptr;

  // For policies that run cells.
  // How many tasks a worker may have at once.
  int max_tasks_to_submit = 5;
  // One task at a time while newcomers come; else always as many as that, of one type at a time.
  bool adaptive_run_ahead = true;
  // How much longer than one step a task may take that runs several: the longest that whoever comes
  // in the meantime waits for it.
  Duration slice = std::chrono::microseconds(200);
  // What steps take; a cost of 0 is unknown. Null: every task is one step. Must outlive the
  // scheduler.
  const CostModel* step_costs = nullptr;

  // For `staged`: 1: batches run one after the other; 2 and more: as a pipeline.
  int buffer_pairs = 2;
  // Nobody joins a batch that was made longer ago. 0: who joins follows from the costs.
  Duration longest_wait{0};
  // The types of all stages, in order, of requests that grow from stage to stage, as they may leave
  // early or skip some. Empty: each request's graph has all of its own.
  std::vector<CellType> stage_types = {};
  // In place of the policy's own conditions. Null: none. Must outlive the scheduler.
  StagePolicy* stage_policy = nullptr;

  // For `continuous`: units of state that all requests under way may grow to together; 0: any.
  int64_t state_capacity = 0;

  // For padding with bucketing: how far the lengths in a bucket may differ, and what is padded to.
  int bucket_width = 10;
};

// What a policy takes requests to be.
enum class GraphForm {
  kCells,   // any graphs; their lengths count for nothing
  kStages,  // chains of one node a stage, of equal rows
  kAny,     // any graphs; where they have a length, those of one batch are padded to the longest
  kPadded,  // graphs of one node and a length: rows are sequences, padded to the longest in a batch
  kRagged,  // graphs of one node: rows are tokens
  kGenerated,  // graphs that grow step by step, with state: rows are tokens
};

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line, for help texts
  GraphForm takes;
  // The options are in range; what only this policy asks of them it checks itself.
  StatusOr<std::unique_ptr<Scheduler>> (*make)(const PolicyOptions& options);
};

std::span<const PolicyInfo> KnownPolicies();

// InvalidArgument where there is no policy of that name.
StatusOr<const PolicyInfo*> FindPolicy(std::string_view name);

// InvalidArgument where no policy has that name (the message lists them) or an option is out of
// range.
StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(std::string_view policy,
                                                   const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICY_H_
