// Dynamic graph merging (BatchMaker §2.3): what DyNet and TensorFlow Fold do with trees.
//
// A batch takes up to max_batch_size waiting requests of any structure and runs their graphs
// together, level by level. All ready nodes of one type are one task, whatever the number of rows;
// later levels that nothing else could join are part of it. All answers are sent when the batch
// ends.
#include "batching/policies/baselines/baselines.h"
#include "batching/policies/baselines/graph_batch.h"

namespace chairlift {
namespace {

class GraphMergeScheduler final : public GraphBatchScheduler {
 public:
  using GraphBatchScheduler::GraphBatchScheduler;

 private:
  Group GroupOf(const CellGraph&) const override { return 0; }

  void FormSteps(Batch& batch) override {
    for (const auto& [type, use] : batch.types) {
      if (use.ready == 0) continue;
      const auto of_type = [type = type](Member, const LiveNode& node) {
        return node.type == type;
      };
      Step step{.type = type, .nodes = TakeReady(batch, of_type), .padding_rows = 0};
      AddSteps(type, WorkerOf(batch), options_.step_costs, options_.time_slice, Waiting::kNobody,
               step.nodes);
      batch.steps.push_back(std::move(step));
    }
  }
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeGraphMergeScheduler(const PolicyOptions& options) {
  return std::make_unique<GraphMergeScheduler>(options);
}

}  // namespace chairlift
