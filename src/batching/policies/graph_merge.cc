#include "batching/policies/graph_merge.h"

#include "base/status.h"
#include "batching/policies/graph_batch.h"

namespace chairlift {
namespace {

class GraphMergeScheduler : public GraphBatchScheduler {
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
      batch.steps.push_back({.type = type, .nodes = TakeReady(batch, of_type), .padding_rows = 0});
    }
  }
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeGraphMergeScheduler(const PolicyOptions& options) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckGraphBatchOptions(options));
  return std::make_unique<GraphMergeScheduler>(options);
}

}  // namespace chairlift
