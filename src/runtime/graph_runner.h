// Runs one graph, plan by plan: the model's own graph, and each body of its control flow.
#ifndef CHAIRLIFT_RUNTIME_GRAPH_RUNNER_H_
#define CHAIRLIFT_RUNTIME_GRAPH_RUNNER_H_

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/plan.h"

namespace chairlift {

struct RunContext {
  Team& team;
  int worker;
  Arena& arena;
  StepObserver* observer = nullptr;
};

// Thread-safe once created. `graph` and `weights` must outlive it.
class GraphRunner {
 public:
  GraphRunner(const Graph& graph, int64_t max_plan_bytes, WeightCache& weights);

  // Inputs as graph.inputs, captures included; not checked against the graph. Outputs may share
  // bytes with inputs and constants (and with each other), never with the arena.
  StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs, const RunContext& context);

  // The plan for inputs of these types and shapes.
  StatusOr<PlanPtr> Prepare(std::span<const TensorDesc> inputs, int width);

 private:
  class RunState;

  StatusOr<PlanPtr> PlanFor(std::span<const Tensor> inputs, int width);
  StatusOr<PlanPtr> Continue(const Plan& plan, std::span<const Tensor> late, int width);
  StatusOr<std::vector<Tensor>> ComputeLate(const Node& node, std::span<const Tensor> inputs,
                                            const RunContext& context);

  const Graph& graph_;
  WeightCache& weights_;
  PlanCache<PlanPtr> plans_;
  std::map<const Graph*, std::unique_ptr<GraphRunner>> bodies_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_GRAPH_RUNNER_H_
