// The ideal of a fixed structure (BatchMaker §7.5, Fig. 15). Requests with equal graphs share a
// batch, and each task runs the same node of all of them. Nothing is padded or merged at run time.
// A batch starts as soon as a worker is idle, and all answers are sent when it ends.
#include <algorithm>

#include "batching/policies/baselines/baselines.h"
#include "batching/policies/baselines/graph_batch.h"

namespace chairlift {
namespace {

class IdealScheduler final : public GraphBatchScheduler {
 public:
  using GraphBatchScheduler::GraphBatchScheduler;

 private:
  // A digest (FNV-1a) of the graph. Two different graphs with the same digest would share a batch,
  // but never a task with nodes of different types.
  Group GroupOf(const CellGraph& graph) const override {
    Group digest = 14695981039346656037u;
    const auto mix = [&digest](uint64_t value) { digest = (digest ^ value) * 1099511628211u; };
    for (int32_t i = 0; i < graph.num_runs(); ++i) {
      const CellGraph::Run run = graph.run(i);
      mix(run.type);
      mix(static_cast<uint64_t>(run.rows));
      mix(static_cast<uint64_t>(run.count));
      for (const int32_t dependency : run.dependencies) {
        mix(static_cast<uint64_t>(dependency));
      }
      mix(~uint64_t{0});
    }
    return digest;
  }

  void FormSteps(Batch& batch) override {
    const auto earlier = [this](Member a, Member b) { return node(a).next() < node(b).next(); };
    const auto first = std::min_element(batch.ready.begin(), batch.ready.end(), earlier);
    if (first == batch.ready.end()) return;
    const int32_t index = node(*first).next();
    const CellType type = node(*first).type;
    const auto wanted = [&](Member /*member*/, const LiveNode& node) {
      return node.next() == index && node.type == type;
    };
    batch.steps.push_back({.type = type, .nodes = TakeReady(batch, wanted), .padding_rows = 0});
  }
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeIdealScheduler(const PolicyOptions& options) {
  return std::make_unique<IdealScheduler>(options);
}

}  // namespace chairlift
