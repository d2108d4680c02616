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

// Options of one cell type. Zero or absent: the policy chooses.
struct CellTypeOptions {
  int max_batch_size = 0;  // default: from the costs, up to PolicyOptions::max_batch_size
  int min_batch_size = 0;  // default: from the costs; 1 without costs
  // Used if many rows wait. Default: max_batch_size if that is set, else from the costs.
  int most_batch_size = 0;
  // Types of higher priority go first. Absent: the type's phase, which is one later than the phases
  // of the types that its first node reads from (decoder over encoder, internal over leaf).
  std::optional<int> priority = {};
};

// Options of all policies. Each policy uses those that apply to it.
struct PolicyOptions {
  // Rows in one task. A single node with more rows is a task by itself. For the policies that batch
  // whole graphs: requests in a batch.
  int max_batch_size = 1;
  // How long a ready node may be held back for a fuller batch while a worker is free.
  Duration queue_delay{0};
  // Preferred numbers of rows of a task, in any order, each in [1, max_batch_size].
  std::vector<int> preferred_batch_sizes = {};

  // The latency target of an answer, for lazy policies: nothing is held back once half of it is
  // nearly spent. 0: unset.
  Duration latency_objective{0};
  // Workers that ask for tasks: for policies that divide waiting requests among them, or that let
  // them run a task together.
  int workers = 1;
  const CostModel* costs = nullptr;  // must outlive the scheduler
  // By cell type; further types have the defaults.
  std::vector<CellTypeOptions> cell_types = {};

  // For `packed`: when a task is for all workers together. Null: never. Must outlive the scheduler.
  const TeamCosts* team_costs = nullptr;

  // For policies that run cells: how many tasks a worker may have at the same time.
  int max_tasks_to_submit = 5;
  // If true, a worker has one task at a time while new requests arrive. If false, it always has
  // max_tasks_to_submit tasks, of one type at a time.
  bool adaptive_run_ahead = true;
  // How much longer than one step a task of several steps may take: the longest extra wait of a
  // request that arrives meanwhile.
  Duration time_slice = std::chrono::microseconds(200);
  // Costs of steps; a cost of 0 is unknown. Null: every task is one step. Must outlive the
  // scheduler.
  const CostModel* step_costs = nullptr;

  // For `staged`. 1: batches run one after the other; 2 and more: as a pipeline.
  int buffer_pairs = 2;
  // A batch older than this accepts no more requests. 0: decided from the costs.
  Duration join_window{0};
  // The types of all stages in order, for requests that grow from stage to stage because they may
  // exit early or skip stages. Empty: each request's graph has all of its stages.
  std::vector<CellType> stage_types = {};
  // Replaces the policy's own rules. Null: not used. Must outlive the scheduler.
  StagePolicy* stage_policy = nullptr;

  // For `continuous`: units of state that all running requests together may grow to; 0: no limit.
  int64_t state_capacity = 0;

  // For padding with bucketing: the width of a bucket of lengths, and the multiple to which lengths
  // are padded.
  int bucket_width = 10;
};

// The form of requests that a policy supports.
enum class GraphForm {
  kCells,   // any graphs; their lengths are ignored
  kStages,  // chains of one node per stage, with equal rows
  kAny,     // any graphs; if they have a length, a batch is padded to the longest
  kPadded,  // graphs of one node and a length: rows are sequences, padded to the longest in a batch
  kRagged,  // graphs of one node: rows are tokens
  kGenerated,  // graphs that grow step by step and have state: rows are tokens
};

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line, for help texts
  GraphForm takes;
  // The common checks of the options have been done; a policy checks its own requirements.
  StatusOr<std::unique_ptr<Scheduler>> (*make)(const PolicyOptions& options);
};

std::span<const PolicyInfo> KnownPolicies();

// InvalidArgument if no policy has this name.
StatusOr<const PolicyInfo*> FindPolicy(std::string_view name);

// InvalidArgument if no policy has this name (the message lists all) or an option is out of range.
StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(std::string_view policy,
                                                   const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICY_H_
