#include "engine/programs/stage_count.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "base/status.h"
#include "batching/length_costs.h"
#include "batching/policy.h"
#include "batching/simulator.h"
#include "engine/programs/cells/cell_costs.h"

namespace chairlift {
namespace {

constexpr int kTries[] = {2, 3, 4, 5, 6, 8, 10, 12};
// More stages must gain more than this factor.
constexpr double kAsGood = 1.02;
constexpr int kTriedRequests = 400;
constexpr double kLoads[] = {0.6, 0.9};

}  // namespace

double LatencyOfStages(std::span<const ModelStage> stages, const StageTrial& trial) {
  LengthCosts costs;
  PolicyOptions options{
      .max_batch_size = trial.max_batch_size, .workers = trial.workers, .costs = &costs};
  Workload load;
  CellGraph& graph = load.graphs.emplace_back();
  // For a batch of the whole model, by size.
  std::vector<double> all(trial.sizes.size(), static_cast<double>(kTaskOverhead.count()));
  for (size_t s = 0; s < stages.size(); ++s) {
    std::vector<LengthCosts::Sample> samples;
    for (size_t i = 0; i < trial.sizes.size(); ++i) {
      const double ns = stages[s].row_costs[i] * trial.sizes[i];
      samples.push_back({trial.sizes[i], 0, kTaskOverhead + Duration(static_cast<int64_t>(ns))});
      all[i] += ns;
    }
    if (!costs.AddType(samples).ok()) return 0;
    options.cell_types.push_back({.priority = static_cast<int>(s)});
    const auto previous = static_cast<int32_t>(s) - 1;
    graph.Add(static_cast<CellType>(s), trial.request_rows,
              s == 0 ? std::span<const int32_t>() : std::span(&previous, 1));
  }
  double peak = 0;  // requests per nanosecond
  double alone = all[0];
  for (size_t i = 0; i < all.size(); ++i) {
    const int size = trial.sizes[i];
    if (size == trial.request_rows) alone = all[i];
    if (size < trial.request_rows || size > trial.max_batch_size) continue;
    peak = std::max(peak, trial.workers * size / all[i] / trial.request_rows);
  }
  double sum = 0;
  for (const double share : kLoads) {
    load.arrivals.clear();
    std::mt19937 random(1);
    std::exponential_distribution<double> gap(peak * share);
    double at = 0;
    for (int i = 0; i < kTriedRequests; ++i) {
      at += gap(random);
      load.arrivals.push_back({Duration(static_cast<int64_t>(at)), 0});
    }
    const auto scheduler = MakeScheduler(trial.policy, options);
    if (!scheduler.ok()) return 0;
    const SimulationResult result = Simulate(**scheduler, load, costs, trial.workers);
    for (const SimulatedRequest& request : result.requests) {
      sum += static_cast<double>((request.left - request.arrived).count());
    }
  }
  return sum / (kTriedRequests * std::size(kLoads)) / alone;
}

StatusOr<StagedModel> CutByTrying(const std::function<StatusOr<StagedModel>(int stages)>& cut,
                                  const StageTrial& trial, std::string& tried) {
  struct Tried {
    StagedModel model;
    double latency;
  };
  std::vector<Tried> all;
  Status failed;
  for (const int stages : kTries) {
    StatusOr<StagedModel> model = cut(stages);
    if (!model.ok()) {
      failed.Update(model.status());
      continue;
    }
    const double latency = LatencyOfStages(model->stages, trial);
    all.push_back({*std::move(model), latency});
    tried += fmt::format("{}{}: {:.2f}", tried.empty() ? "" : ", ", stages, latency);
  }
  if (all.empty()) {
    tried.clear();
    return failed;
  }
  const double least = std::min_element(all.begin(), all.end(), [](const Tried& a, const Tried& b) {
                         return a.latency < b.latency;
                       })->latency;
  const auto chosen = std::find_if(
      all.begin(), all.end(), [least](const Tried& one) { return one.latency <= kAsGood * least; });
  tried =
      fmt::format("stages tried by simulation, latency in terms of one request alone: {}", tried);
  return std::move(chosen->model);
}

}  // namespace chairlift
