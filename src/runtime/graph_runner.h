// Runs one graph, plan by plan: the model's own graph, and each body of its control flow.
#ifndef CHAIRLIFT_RUNTIME_GRAPH_RUNNER_H_
#define CHAIRLIFT_RUNTIME_GRAPH_RUNNER_H_

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/node_timer.h"
#include "runtime/plan.h"

namespace chairlift {

struct RunContext {
  Team& team;
  int worker;
  Arena& arena;
  const StopFlag* stop = nullptr;
  NodeTimer* timer = nullptr;  // null: nodes are not timed
};

// Thread-safe once created. `graph`, `weights` and `device` must outlive it. All plans together, of
// its bodies and the continuations of plans included, hold `max_plan_bytes` at most; a few of the
// most recently used ones are kept whatever they hold.
class GraphRunner {
 public:
  GraphRunner(const Graph& graph, int64_t max_plan_bytes, WeightCache& weights,
              Device& device = CpuDevice());
  ~GraphRunner();

  // Inputs correspond to graph.inputs, including captures, in their stored shapes
  // (TensorDesc::StoredShape); they are not checked against the graph. Outputs are in stored shapes
  // too. They may share bytes with inputs, constants and each other, never with the arena. Runs, or
  // enqueues the run on the arena's stream.
  StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs, const RunContext& context);

  // The plan for inputs of these types and stored shapes.
  StatusOr<PlanPtr> Prepare(std::span<const TensorDesc> inputs, int width);

  // What is kept of the graph, its bodies and continuations.
  int plans_kept() const { return plans_.kept.size(); }
  int64_t held_bytes() const { return plans_.kept.held_bytes(); }

 private:
  class RunState;
  // The plans of a graph and all bodies in it.
  struct Plans {
    PlanCache<PlanPtr> kept;
    int64_t graphs = 0;  // that have a number
  };

  // Runs a body. Its plans are among those of the model.
  GraphRunner(const Graph& graph, Plans& plans, WeightCache& weights, Device& device);
  void MakeBodies();
  PlanKey KeyOf(int width) const;

  // Input i of the graph with that stored shape.
  TensorDesc DescOfInput(size_t i, DType dtype, const Shape& stored) const;
  // Returns in `plan` what must stay until the enqueued steps have run.
  StatusOr<std::vector<Tensor>> RunPlans(PlanPtr& plan, std::span<const Tensor> inputs,
                                         const RunContext& context);
  StatusOr<PlanPtr> PlanFor(std::span<const Tensor> inputs, int width);
  StatusOr<PlanPtr> Continue(const Plan& plan, std::span<const Tensor> late, int width);
  // Refuses results of more than `max_bytes`. Counts runs of the node's bodies in `body_runs`.
  StatusOr<std::vector<Tensor>> ComputeLate(const Node& node, std::span<const Tensor> inputs,
                                            const RunContext& context, int64_t max_bytes,
                                            int64_t& body_runs);

  const Graph& graph_;
  WeightCache& weights_;
  Device& device_;
  const std::unique_ptr<Plans> own_plans_;  // null for a body
  Plans& plans_;
  const int64_t number_;  // of the graph, among those of `plans_`
  std::map<const Graph*, std::unique_ptr<GraphRunner>> bodies_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_GRAPH_RUNNER_H_
