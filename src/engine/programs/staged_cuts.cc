#include "engine/programs/staged_cuts.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/status.h"
#include "engine/costs/operator_costs.h"
#include "engine/programs/stage_count.h"
#include "engine/programs/stage_exits.h"
#include "runtime/executable.h"

namespace chairlift {
namespace {

// Times of separate nodes, in nanoseconds.
struct NodeCosts {
  std::vector<double> one;                     // for a batch of one row, by node
  std::vector<int> sizes;                      // of batches; empty: only one row is known
  std::vector<std::vector<double>> row_costs;  // by size, as in StageCuts
};

// At the sizes for which all running nodes have costs.
NodeCosts NodeCostsOf(std::span<const CostByRows> costs) {
  NodeCosts of;
  for (const auto& [rows, all] : SumOfCosts(costs)) {
    of.sizes.push_back(rows);
    std::vector<double>& own = of.row_costs.emplace_back();
    for (const CostByRows& node : costs) {
      const auto found = node.find(rows);
      own.push_back(found == node.end() ? 0 : static_cast<double>(found->second.count()) / rows);
    }
  }
  if (!of.sizes.empty() && of.sizes[0] == 1) of.one = of.row_costs[0];
  return of;
}

// Saved costs. Otherwise they are measured: at several sizes if the model's load may take time,
// else at one row.
NodeCosts FindNodeCosts(const Graph& graph, const StageInputs& inputs, const LoadingModel& loading,
                        const ExecutableOptions& options) {
  NodeCosts equal;
  equal.one.assign(graph.nodes.size(), 1);
  const StatusOr<std::unique_ptr<Executable>> whole = Executable::Create(graph, options);
  if (!whole.ok()) return equal;
  const auto make = [&](int rows) { return inputs.make(**whole, rows); };
  OperatorProfiling profiling;
  profiling.max_rows = inputs.max_rows;
  profiling.workers = loading.load.workers;
  profiling.budget = std::chrono::seconds(8);
  profiling.progress = loading.load.ReportTiming();
  auto costs = FindOperatorCosts(**whole, profiling, loading.load.autotune, make);
  if (!costs.ok() || !AnyKnown(*costs)) {
    profiling = {.max_rows = 1, .budget = std::chrono::milliseconds(500)};
    costs = FindOperatorCosts(**whole, profiling, /*measure=*/true, make);
  }
  if (!costs.ok()) return equal;
  NodeCosts found = NodeCostsOf(*costs);
  return found.one.empty() ? equal : found;
}

std::vector<CostSamples> CostsOf(const StagedModel& model, std::span<const int> sizes) {
  std::vector<CostSamples> costs;
  for (const ModelStage& stage : model.stages) {
    CostSamples& own = costs.emplace_back();
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto cost = static_cast<int64_t>(stage.row_costs[i] * sizes[i]);
      own.push_back({sizes[i], 0, Duration(std::max<int64_t>(cost, 1))});
    }
  }
  return costs;
}

}  // namespace

StageCuts CutsOf(const LoadingModel& loading, const OtherNames& others) {
  const ModelConfig& config = loading.config;
  StageCuts cuts{.stages = config.stages};
  for (const std::string& name : config.stages_after) {
    cuts.after.push_back(NameInGraph(others, name));
  }
  AddExitCuts(config.exits, others, cuts);
  if (!cuts.after.empty() || !cuts.skips.empty()) cuts.before_passes = NamesIn(loading.graph);
  return cuts;
}

StatusOr<CutModel> CutStagedModel(const Graph& graph, const std::set<std::string>& rows,
                                  StageCuts cuts, const StageInputs& inputs,
                                  const LoadingModel& loading, const ExecutableOptions& options) {
  const ModelConfig& config = loading.config;
  const NodeCosts nodes = FindNodeCosts(graph, inputs, loading, options);
  cuts.row_costs = nodes.row_costs;
  CutModel cut;
  const auto into = [&](int stages) {
    cuts.stages = stages;
    return CutIntoStages(graph, rows, nodes.one, cuts);
  };
  StatusOr<StagedModel> model = Unimplemented("not tried");
  if (!SaysWhereToCut(config) && nodes.sizes.size() > 1) {
    const int given = cuts.packed ? config.max_batch_tokens : config.max_batch_size;
    const StageTrial trial{.sizes = nodes.sizes,
                           .policy = config.policy == "cellular" ? "cellular" : "staged",
                           .max_batch_size = given > 0 ? given : inputs.max_rows,
                           .workers = loading.load.workers,
                           .request_rows = inputs.request_rows};
    model = CutByTrying(into, trial, cut.tried);
  }
  if (!model.ok()) model = into(config.stages);
  CHAIRLIFT_RETURN_IF_ERROR(model.status());
  cut.model = *std::move(model);
  if (nodes.sizes.size() > 1) cut.costs = CostsOf(cut.model, nodes.sizes);
  return cut;
}

}  // namespace chairlift
