// A plan: what one graph does for one shape class, with nothing left to decide but the addresses.
//
// A plan is a list of steps (kernels in order, every operand's place known) followed by its *late*
// nodes: control flow, and nodes whose output shapes depend on data. What depends on those is
// planned once their shapes are at hand, as a continuation of this plan, which is kept under those
// shapes as plans are kept under their inputs' shapes. Most models have no late node and one plan.
//
// Immutable once built, apart from the cache of continuations, which is thread-safe.
#ifndef CHAIRLIFT_RUNTIME_PLAN_H_
#define CHAIRLIFT_RUNTIME_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/ir.h"
#include "runtime/executable.h"
#include "runtime/memory_planner.h"
#include "runtime/plan_cache.h"

namespace chairlift {

// Where an operand's bytes are. Views and in-place results share their source's place.
struct Place {
  enum Kind : uint8_t { kAbsent, kInput, kKnown, kArena, kOutput, kLate };
  Kind kind = kAbsent;
  // kArena: bytes from the arena's start. Otherwise an index: of the graph's inputs, of
  // Plan::known, of the graph's outputs, of the late values of the run.
  size_t at = 0;
};

struct Operand {
  Place place;
  TensorDesc desc;
};

struct Step {
  const Node* node = nullptr;
  std::unique_ptr<Kernel> kernel;
  const PlanStats::KernelUse* use = nullptr;  // in the plan's stats; null: there is no choice
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  size_t scratch_offset = 0;
  bool has_scratch = false;
};

struct LateNode {
  const Node* node = nullptr;
  std::vector<Operand> inputs;
  int first_output = 0;  // its outputs are late values [first_output, + node->outputs.size())
};

// A graph output that a step writes straight into.
struct NewOutput {
  int index;
  TensorDesc desc;
};
// A graph output that shares its bytes with something else until the end.
struct SharedOutput {
  int index;
  Operand source;
};

// What is known of a value while a plan is built.
struct BoundValue {
  bool resolved = false;  // desc is final
  TensorDesc desc;
  Tensor value;  // where known ahead of the run
  std::optional<std::vector<Dim>> elements;
  Place place;  // kAbsent for values known ahead of the run: each plan lists those it reads
};

// Where a plan stops, and what a continuation of it starts from.
struct BindState {
  std::vector<BoundValue> values;    // by ValueId
  std::vector<int> nodes;            // still to be planned, in order
  std::vector<ValueId> late;         // the late values so far; kNoValue for absent outputs
  size_t fresh_late = 0;             // of those, the last so many are of the plan's own late nodes
  std::vector<PlacedRecord> placed;  // what earlier plans of the run leave in the arena
  std::vector<bool> output_done;     // by index of the graph's outputs
};

// Of one plan.
inline constexpr int64_t kMaxContinuationBytes = int64_t{1} << 20;
inline constexpr int kContinuationsKept = 16;  // whatever they hold

class Plan;
using PlanPtr = std::shared_ptr<const Plan>;

class Plan {
 public:
  int64_t held_bytes() const { return stats.held_bytes; }

  std::vector<Step> steps;
  std::vector<LateNode> late;
  std::vector<NewOutput> new_outputs;
  std::vector<SharedOutput> shared_outputs;
  std::vector<Tensor> known;  // constants and values computed once, as operands; on the device
  size_t arena_bytes = 0;     // from the arena's start, earlier plans of this run included
  PlanStats stats;

  std::unique_ptr<const BindState> rest;  // null where nothing is left to do after this
  mutable PlanCache<PlanPtr> continuations{kMaxContinuationBytes, kContinuationsKept};

 private:
  friend class PlanBuilder;
  std::unique_ptr<WeightCache> own_weights_;  // packed forms of values computed for this class
};

// Plans what can be planned of `graph` from `state`.
StatusOr<PlanPtr> BuildPlan(const Graph& graph, BindState state, int width, WeightCache& weights,
                            Device& device);

// The state before the first plan for inputs of these types and shapes.
BindState InitialState(const Graph& graph, std::span<const TensorDesc> inputs);

// The state after `plan` has run; `late` are all late values of the run so far.
BindState StateAfter(const Graph& graph, const Plan& plan, std::span<const Tensor> late);

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_PLAN_H_
