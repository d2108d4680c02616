#include "engine/programs/plan_ahead.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

// 2, 3, 4, 6, 8, 12 … rows up to `most`, and `most`.
std::vector<int> SizesAhead(int most) {
  std::vector<int> sizes;
  for (int rows = 2; rows < most; rows *= 2) {
    sizes.push_back(rows);
    if (rows * 3 / 2 < most) sizes.push_back(rows * 3 / 2);
  }
  if (most > 1) sizes.push_back(most);
  return sizes;
}

// The plans still to be made. A step makes those of one size of one executable, and queues the next
// step behind other work of the thread.
class BatchPlans : public std::enable_shared_from_this<BatchPlans> {
 public:
  BatchPlans(std::vector<BatchPlanner> planners, std::weak_ptr<const void> owner,
             const LoadOptions& load)
      : planners_(std::move(planners)),
        owner_(std::move(owner)),
        workers_(load.workers),
        background_(*load.background) {
    for (size_t i = 0; i < planners_.size(); ++i) {
      most_bytes_.push_back(kPackedAhead * planners_[i].weight_bytes());
      for (const int rows : SizesAhead(planners_[i].max_rows)) steps_.push_back({rows, i});
    }
    // In order of size, because small batches occur first.
    std::stable_sort(steps_.begin(), steps_.end(),
                     [](const auto& a, const auto& b) { return a.rows < b.rows; });
  }

  // If the thread's queue is full, the first batches make their plans.
  void Continue() {
    if (next_ == steps_.size()) return;
    (void)background_.Run([self = shared_from_this()] {
      if (const auto owner = self->owner_.lock()) self->RunStep();
    });
  }

 private:
  struct PlanStep {
    int rows;
    size_t planner;
  };

  void RunStep() {
    const auto [rows, index] = steps_[next_++];
    const BatchPlanner& planner = planners_[index];
    if (planner.weight_bytes() < most_bytes_[index]) {
      // An error here also occurs for requests, and is reported to them.
      (void)planner.plan(rows, workers_);
      if (workers_ > 1) (void)planner.plan(rows, 1);
    }
    Continue();
  }

  const std::vector<BatchPlanner> planners_;
  const std::weak_ptr<const void> owner_;
  const int workers_;
  Background& background_;
  std::vector<size_t> most_bytes_;  // by planner
  std::vector<PlanStep> steps_;
  size_t next_ = 0;
};

}  // namespace

BatchPlanner PlannerOf(Executable& executable, std::vector<Shape> one_row, int max_rows) {
  return {.max_rows = max_rows,
          .plan =
              [&executable, one_row = std::move(one_row)](int rows, int width) {
                std::vector<Shape> shapes = one_row;
                for (Shape& shape : shapes) shape[0] = rows;
                return executable.Prepare(shapes, width).status();
              },
          .weight_bytes = [&executable] { return executable.weight_bytes(); }};
}

Status PlanOneRow(const BatchPlanner& planner, int workers) {
  CHAIRLIFT_RETURN_IF_ERROR(planner.plan(1, 1));
  return workers > 1 ? planner.plan(1, workers) : absl::OkStatus();
}

void PlanBatchesAhead(std::vector<BatchPlanner> planners, std::weak_ptr<const void> owner,
                      const LoadOptions& load) {
  if (load.background == nullptr || !load.autotune) return;
  std::make_shared<BatchPlans>(std::move(planners), std::move(owner), load)->Continue();
}

}  // namespace chairlift
