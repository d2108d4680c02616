// Padding with bucketing (BatchMaker §7.1): what TensorFlow and MXNet do with recurrent models.
//
// A request's length is the largest number of rows that it has of any one cell type. Bucket i holds
// lengths in (i·width, (i+1)·width]. A batch takes requests of one bucket, buckets take turns, and
// a batch starts as soon as a worker is idle. All requests in it are padded to the bucket's upper
// length: every cell type runs as many steps as the longest needs, rounded up to the width, and a
// projection over all steps has that many rows for each request. A request that has ended is a row
// of padding. One type runs to its end before the next phase starts. All answers are sent when the
// batch ends.
//
// Meant for chains. A tree is padded to the longest path of each type, which wastes a lot.
#include <algorithm>
#include <map>

#include "batching/policies/baselines/baselines.h"
#include "batching/policies/baselines/graph_batch.h"

namespace chairlift {
namespace {

class BucketedScheduler final : public GraphBatchScheduler {
 public:
  using GraphBatchScheduler::GraphBatchScheduler;

 private:
  Group GroupOf(const CellGraph& graph) const override {
    std::map<CellType, int64_t> rows;
    int64_t length = 1;
    for (int32_t i = 0; i < graph.num_runs(); ++i) {
      const CellGraph::Run run = graph.run(i);
      int64_t& of_type = rows[run.type];
      of_type += int64_t{run.rows} * run.count;
      length = std::max(length, of_type);
    }
    return static_cast<Group>((length - 1) / options_.bucket_width);
  }

  // One step stays one: a head runs once, whatever the width.
  int Padded(int length) const {
    if (length <= 1) return length;
    return (length + options_.bucket_width - 1) / options_.bucket_width * options_.bucket_width;
  }

  void FormSteps(Batch& batch) override {
    for (auto& [type, use] : batch.types) {
      if (use.to_give > 0) continue;
      const int32_t rows = static_cast<int32_t>(use.requests.size()) * Padded(use.node_rows);
      for (; use.steps < Padded(use.longest_chain); ++use.steps) {
        batch.steps.push_back({.type = type, .nodes = {}, .padding_rows = std::max(rows, 1)});
      }
    }
    if (!batch.steps.empty()) return;
    const auto later = [this](const auto& a, const auto& b) {
      const bool a_ready = a.second.ready > 0;
      const bool b_ready = b.second.ready > 0;
      if (a_ready != b_ready) return a_ready;
      return phases_.Of(a.first) < phases_.Of(b.first);
    };
    const auto first = std::min_element(batch.types.begin(), batch.types.end(), later);
    if (first->second.ready > 0) FormStep(batch, first->first, first->second);
  }

  void FormStep(Batch& batch, CellType type, TypeUse& use) {
    ++use.steps;
    const int32_t width = Padded(use.node_rows);
    Step step{.type = type, .nodes = {}, .padding_rows = 0};
    int32_t rows = 0;
    std::vector<Member> nodes =
        TakeReady(batch, [type](Member, const LiveNode& node) { return node.type == type; });
    const auto absent =
        std::max(static_cast<int32_t>(use.requests.size()) - static_cast<int32_t>(nodes.size()), 0);
    const bool one_task = static_cast<int64_t>(use.requests.size()) <= options_.max_batch_size;
    if (one_task && width == 1 && !nodes.empty()) {
      use.steps += AddSteps(type, WorkerOf(batch), options_.step_costs, options_.time_slice,
                            Waiting::kNobody, nodes, absent) -
                   1;
      step.padded_steps = nodes.front().steps > 1;
    }
    for (const Member member : nodes) {
      if (rows > 0 && rows + width > options_.max_batch_size) {
        batch.steps.push_back(std::move(step));
        step = {.type = type, .nodes = {}, .padding_rows = 0};
        rows = 0;
      }
      rows += std::max(width, 1);
      step.padding_rows += width - node(member).rows;
      step.nodes.push_back(member);
    }
    step.padding_rows += absent * width;
    batch.steps.push_back(std::move(step));
  }
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeBucketedScheduler(const PolicyOptions& options) {
  return std::make_unique<BucketedScheduler>(options);
}

}  // namespace chairlift
