#include "engine/programs/rows_graph.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/status.h"

namespace chairlift {
namespace {

class OneNode final : public RowsGraph {
 public:
  using RowsGraph::RowsGraph;

  int32_t num_nodes() const override { return 1; }
  bool done() const override { return done_; }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override { return std::move(outputs_); }

  const ValidatedRequest& rows(int32_t /*node*/) override { return request(); }
  Status Complete(int32_t /*node*/, std::vector<NamedTensor> outputs,
                  const RowParts::Limits& /*limits*/) override {
    outputs_ = std::move(outputs);
    done_ = true;
    return absl::OkStatus();
  }

 private:
  int32_t load(int32_t /*node*/) const override { return request().load(); }

  bool done_ = false;
  std::vector<NamedTensor> outputs_;
};

// At most as many nodes as can run concurrently, each of which adds the next one: other requests
// run in between.
class GrowingParts final : public RowsGraph {
 public:
  GrowingParts(ValidatedRequest request, int cell, bool padded, int32_t max_load, int at_once)
      : RowsGraph(std::move(request), cell, padded),
        parts_(this->request(), max_load),
        first_(std::min(parts_.count(), at_once)) {
    for (int32_t node = 0; node < first_; ++node) begun_[node] = parts_.Part(node);
    next_ = first_;
  }

  int32_t num_nodes() const override { return first_; }
  std::vector<GrownNode> TakeGrown() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(grown_, {});
  }
  bool done() const override { return complete_ == parts_.count(); }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override { return parts_.Take(); }

  const ValidatedRequest& rows(int32_t node) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return begun_.at(node);
  }
  Status Complete(int32_t node, std::vector<NamedTensor> outputs,
                  const RowParts::Limits& limits) override {
    CHAIRLIFT_RETURN_IF_ERROR(parts_.Put(node, outputs, limits));
    const std::lock_guard<std::mutex> lock(mutex_);
    begun_.erase(node);
    if (next_ < parts_.count()) {
      begun_[next_] = parts_.Part(next_);
      const ValidatedRequest& rows = begun_[next_++];
      GrownNode grown{.cell = cell(), .rows = rows.load(), .dependencies = {}, .key = {}};
      grown.key.assign(rows.key.begin(), rows.key.end());
      grown_.push_back(std::move(grown));
    }
    ++complete_;
    return absl::OkStatus();
  }

 private:
  int32_t load(int32_t node) const override { return parts_.load(node); }

  RowParts parts_;  // by node
  const int32_t first_;
  mutable std::mutex mutex_;
  // Everything below is guarded by mutex_.
  std::map<int32_t, ValidatedRequest> begun_;  // those that have not completed
  int32_t next_ = 0;
  int32_t complete_ = 0;
  std::vector<GrownNode> grown_;
};

}  // namespace

std::unique_ptr<RowsGraph> MakeRowsGraph(ValidatedRequest request,
                                         const RowsGraphOptions& options) {
  if (options.max_load > 0) {
    return std::make_unique<GrowingParts>(std::move(request), options.cell, options.padded,
                                          options.max_load, options.at_once);
  }
  return std::make_unique<OneNode>(std::move(request), options.cell, options.padded);
}

}  // namespace chairlift
