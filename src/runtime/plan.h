// A plan: what one graph does for one shape class. Only the addresses are left to fill in.
//
// A plan is a list of steps (kernels in order, with every operand's place known), followed by its
// *late* nodes: control flow, and nodes whose output shapes depend on data. Nodes that depend on
// late results are planned when those shapes are known, as a continuation of this plan.
// Continuations are kept by those shapes, as plans are kept by input shapes. Most models have no
// late node and one plan.
//
// Immutable once built.
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

// Where an operand's bytes are. Views and in-place results have the place of their source.
struct Place {
  enum Kind : uint8_t { kAbsent, kInput, kKnown, kArena, kOutput, kLate };
  Kind kind = kAbsent;
  // For kArena: bytes from the arena's start. Otherwise an index into the graph's inputs,
  // Plan::known, the graph's outputs, or the late values of the run.
  size_t at = 0;
};

struct Operand {
  Place place;
  TensorDesc desc;
};

struct Step {
  const Node* node = nullptr;
  std::unique_ptr<Kernel> kernel;
  const PlanStats::KernelUse* use = nullptr;  // in the plan's stats; null: only one implementation
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  size_t scratch_offset = 0;
  bool has_scratch = false;
};

struct LateNode {
  const Node* node = nullptr;
  std::vector<Operand> inputs;
  // Its outputs are late values [first_output, first_output + node->outputs.size()).
  int first_output = 0;
};

// A graph output that a step writes directly.
struct NewOutput {
  int index;
  TensorDesc desc;
};
// A graph output that shares its bytes with another value until the end of the run.
struct SharedOutput {
  int index;
  Operand source;
};

// What is known about a value while a plan is built.
struct BoundValue {
  bool resolved = false;  // desc is final
  TensorDesc desc;
  Tensor value;  // if known before the run
  std::optional<std::vector<Dim>> elements;
  Place place;  // kAbsent for values known before the run: each plan lists those it reads
};

// The state at the end of a plan, where its continuation starts.
struct BindState {
  std::vector<BoundValue> values;  // by ValueId
  std::vector<int> nodes;          // not yet planned, in order
  std::vector<ValueId> late;       // the late values so far; kNoValue for absent outputs
  // How many of those, at the end, come from the plan's own late nodes.
  size_t fresh_late = 0;
  std::vector<PlacedRecord> placed;  // arena memory in use by earlier plans of the run
  std::vector<bool> output_done;     // by index of the graph's outputs
};

class Plan;
using PlanPtr = std::shared_ptr<const Plan>;

class Plan {
 public:
  int64_t held_bytes() const { return stats.held_bytes; }

  std::vector<Step> steps;
  std::vector<LateNode> late;
  std::vector<NewOutput> new_outputs;
  std::vector<SharedOutput> shared_outputs;
  std::vector<Tensor> known;  // operands that are constants or were computed once; on the device
  size_t arena_bytes = 0;     // from the arena's start, including earlier plans of this run
  PlanStats stats;

  std::unique_ptr<const BindState> rest;  // null if nothing is left to do after this plan
  int64_t number = 0;                     // tells plans apart

 private:
  friend class PlanBuilder;
  std::unique_ptr<WeightCache> own_weights_;  // packed forms of values computed for this class
};

// Plans as much of `graph` as possible, starting at `state`.
StatusOr<PlanPtr> BuildPlan(const Graph& graph, BindState state, int width, WeightCache& weights,
                            Device& device);

// The state before the first plan for inputs of these types and shapes.
BindState InitialState(const Graph& graph, std::span<const TensorDesc> inputs);

// The state after `plan` has run; `late` are all late values of the run so far.
BindState StateAfter(const Graph& graph, const Plan& plan, std::span<const Tensor> late);

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_PLAN_H_
