#include "engine/programs/staged_task.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/status.h"

namespace chairlift {

TaskResult RunStagedTask(TaskRun& run, int stages,
                         absl::FunctionRef<Status(std::span<const StagedItem>)> compute) {
  const Clock& clock = Clock::Steady();
  const TimePoint start = clock.Now();
  absl::InlinedVector<StagedItem, 8> items;
  TaskResult result;
  for (TaskNode& node : run.nodes) {
    auto& request = static_cast<StagedRequest&>(*node.graph);
    node.units = request.request().load();
    node.share = 1.0 / stages;
    node.status = request.Begin(run.cell, run.memory);
    if (!node.status.ok()) continue;
    items.push_back({&request, &node});
    result.rows += static_cast<int32_t>(request.rows());
  }
  const auto guarded = [&](std::span<const StagedItem> some) {
    return CatchOutOfMemory([&] { return compute(some); });
  };
  const TimePoint begun = clock.Now();
  if (!items.empty()) {
    const Status together = guarded(items);
    const bool stopped = run.memory.stop != nullptr && *run.memory.stop;
    for (const StagedItem& item : items) {
      if (together.ok()) break;
      item.node->status = items.size() == 1 || stopped ? together : guarded({&item, 1});
    }
  }
  result.compute_input = begun - start;
  result.compute_infer = clock.Now() - begun;
  return result;
}

SharedStageMemory MemoryOf(std::span<const StagedItem> items) {
  if (items.size() < 2) return nullptr;
  std::vector<std::shared_ptr<StageMemory>> all;
  for (const StagedItem& item : items) {
    if (item.request->memory() != nullptr) all.push_back(item.request->memory());
  }
  return std::make_shared<const std::vector<std::shared_ptr<StageMemory>>>(std::move(all));
}

}  // namespace chairlift
